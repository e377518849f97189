SELECT number, request_hash, vector
FROM coaching_vectors
WHERE tenant = $1 AND model = $2
ORDER BY number DESC
LIMIT $3
