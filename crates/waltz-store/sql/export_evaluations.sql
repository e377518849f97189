SELECT id, record
FROM exchanges
WHERE $1 IS NULL OR tenant = $1
ORDER BY id
