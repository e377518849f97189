SELECT id, record FROM exchanges WHERE response_id = $1 AND ($2 IS NULL OR tenant = $2) LIMIT 1
