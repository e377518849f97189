-- `$1` is a JSON list of rows. Materialised, so that each row is taken out of the list once and not per column.
WITH given AS MATERIALIZED (SELECT value FROM json_each($1))
INSERT INTO safety_evaluations (
    id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse,
    degraded, blocks, state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score,
    categories, issues
)
SELECT
    value ->> 'id', value ->> 'exchange_id', value ->> 'tenant', value ->> 'subject', value ->> 'session_id',
    value ->> 'judged_at', value ->> 'text_kind', value ->> 'choice', value ->> 'round', value ->> 'is_unsafe',
    value ->> 'overrefuse', value ->> 'degraded', value ->> 'blocks', value ->> 'state', value ->> 'level',
    value ->> 'micros', value ->> 'prompt_harm', value ->> 'response_harm', value ->> 'refusal',
    value ->> 'safety_score', value ->> 'helpfulness_score', value ->> 'categories', value ->> 'issues'
FROM given
