INSERT INTO coaching_text (rowid, tenant_key, user_request) VALUES ($1, $2, $3)
