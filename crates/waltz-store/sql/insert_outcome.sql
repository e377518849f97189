INSERT INTO outcomes (id, tenant, subject, response_id, received_at, success, rating, outcome)
VALUES (
    $1, $2, (SELECT subject FROM exchanges WHERE response_id = $3 AND tenant = $2 LIMIT 1), $3, $4, $5, $6, $7
) ON CONFLICT (id) DO NOTHING
