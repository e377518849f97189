SELECT id, record FROM exchanges WHERE id = $1 AND response_id = $2 AND ($3 IS NULL OR tenant = $3)
