SELECT id, record
FROM exchanges
WHERE ($1 IS NULL OR tenant = $1) AND id <= $2
ORDER BY id DESC
LIMIT $3
