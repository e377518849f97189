-- `$1` is a JSON list of rows. Materialised, so that each row is taken out of the list once and not per column.
WITH given AS MATERIALIZED (SELECT value FROM json_each($1))
INSERT INTO trajectories (
    id, exchange_id, tenant, subject, recorded_at, request_hash, coaching_round, state, action, next_state,
    terminal, answered, safety_score, helpfulness_score, dir_score
)
SELECT
    value ->> 'id', value ->> 'exchange_id', value ->> 'tenant', value ->> 'subject', value ->> 'recorded_at',
    value ->> 'request_hash', value ->> 'coaching_round', value ->> 'state', value ->> 'action',
    value ->> 'next_state', value ->> 'terminal', value ->> 'answered', value ->> 'safety_score',
    value ->> 'helpfulness_score', value ->> 'dir_score'
FROM given
