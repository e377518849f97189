-- `$1` is a JSON list of rows.
INSERT INTO exchanges (
    id, tenant, subject, session_id, response_id, started_at, decision, status, degraded, endpoint, agent, variant,
    task_type, risk, request_hash, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided,
    record
)
SELECT
    id, tenant, subject, session_id, response_id, started_at, decision, status, degraded, endpoint, agent, variant,
    task_type, risk, request_hash, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided,
    record
FROM json_to_recordset($1::json) AS given (
    id TEXT, tenant TEXT, subject TEXT, session_id TEXT, response_id TEXT, started_at BIGINT, decision TEXT,
    status BIGINT, degraded TEXT, endpoint TEXT, agent TEXT, variant TEXT, task_type TEXT, risk TEXT,
    request_hash TEXT, coached_choices BIGINT, rounds BIGINT, dir_score_sum DOUBLE PRECISION, judged BIGINT,
    safe BIGINT, overrefused BIGINT, undecided BIGINT, record TEXT
)
ON CONFLICT (id) DO NOTHING
RETURNING id
