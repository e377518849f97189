-- `$1` is the gateway's instance: many gateways share this database, each with its own journal.
SELECT segment, position, (SELECT COUNT(*) FROM rejected_entries WHERE instance = $1) AS rejected
FROM journal_positions
WHERE instance = $1
