SELECT id, received_at, outcome
FROM outcomes
WHERE response_id = $1 AND tenant = $2
ORDER BY received_at, id
