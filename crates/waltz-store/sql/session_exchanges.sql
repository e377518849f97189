SELECT id, response_id, record
FROM exchanges
WHERE session_id = $1 AND tenant = $2
ORDER BY started_at DESC, id DESC
LIMIT $3
