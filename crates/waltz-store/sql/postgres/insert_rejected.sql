INSERT INTO rejected_entries (segment, position, reason, payload, instance) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (instance, segment, position) DO NOTHING
