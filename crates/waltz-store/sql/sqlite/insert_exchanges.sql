-- `$1` is a JSON list of rows. Materialised, so that each row is taken out of the list once and not per column.
WITH given AS MATERIALIZED (SELECT value FROM json_each($1))
INSERT INTO exchanges (
    id, tenant, subject, session_id, response_id, started_at, decision, status, degraded, endpoint, agent, variant,
    task_type, risk, request_hash, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided,
    record
)
SELECT
    value ->> 'id', value ->> 'tenant', value ->> 'subject', value ->> 'session_id', value ->> 'response_id',
    value ->> 'started_at', value ->> 'decision', value ->> 'status', value ->> 'degraded', value ->> 'endpoint',
    value ->> 'agent', value ->> 'variant', value ->> 'task_type', value ->> 'risk', value ->> 'request_hash',
    value ->> 'coached_choices', value ->> 'rounds', value ->> 'dir_score_sum', value ->> 'judged',
    value ->> 'safe', value ->> 'overrefused', value ->> 'undecided', value ->> 'record'
FROM given
WHERE TRUE
ON CONFLICT (id) DO NOTHING
RETURNING id
