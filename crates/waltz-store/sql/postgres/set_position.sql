-- `$3` is the gateway's instance: many gateways share this database, each with its own journal.
INSERT INTO journal_positions (segment, position, instance) VALUES ($1, $2, $3)
ON CONFLICT (instance) DO UPDATE SET segment = excluded.segment, position = excluded.position
