-- `findings <> 0` leads to the index of the few that have any.
SELECT id, record
FROM exchanges
WHERE ($1 IS NULL OR tenant = $1) AND id <= $2 AND findings <> 0 AND findings & $4 <> 0
ORDER BY id DESC
LIMIT $3
