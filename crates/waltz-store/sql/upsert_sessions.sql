-- `$1` is a JSON list of what each new exchange adds to its session.
WITH given AS MATERIALIZED (SELECT value FROM json_each($1))
INSERT INTO coaching_sessions (
    tenant, session_id, subject, started_at, last_at, exchanges, coached_choices, rounds, dir_score_sum
)
SELECT
    value ->> 'tenant', value ->> 'session_id', value ->> 'subject', value ->> 'started_at', value ->> 'started_at', 1,
    value ->> 'coached_choices', value ->> 'rounds', value ->> 'dir_score_sum'
FROM given
WHERE TRUE
ON CONFLICT (tenant, session_id) DO UPDATE SET
    subject = COALESCE(coaching_sessions.subject, excluded.subject),
    started_at = CASE WHEN excluded.started_at < coaching_sessions.started_at
        THEN excluded.started_at ELSE coaching_sessions.started_at END,
    last_at = CASE WHEN excluded.last_at > coaching_sessions.last_at
        THEN excluded.last_at ELSE coaching_sessions.last_at END,
    exchanges = coaching_sessions.exchanges + 1,
    coached_choices = coaching_sessions.coached_choices + excluded.coached_choices,
    rounds = coaching_sessions.rounds + excluded.rounds,
    dir_score_sum = coaching_sessions.dir_score_sum + excluded.dir_score_sum
