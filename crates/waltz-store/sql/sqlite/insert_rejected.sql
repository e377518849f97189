INSERT INTO rejected_entries (segment, position, reason, payload) VALUES ($1, $2, $3, $4)
ON CONFLICT (segment, position) DO NOTHING
