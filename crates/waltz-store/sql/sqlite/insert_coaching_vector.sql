INSERT INTO coaching_vectors (number, tenant, model, request_hash, vector) VALUES ($1, $2, $3, $4, $5)
