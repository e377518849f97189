INSERT INTO outcomes (id, tenant, subject, response_id, received_at, success, rating, outcome)
VALUES (
    $1, $2, (SELECT subject FROM exchanges WHERE id = $8 AND response_id = $3 AND tenant = $2), $3, $4, $5, $6, $7
) ON CONFLICT (id) DO NOTHING
