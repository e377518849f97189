-- `$1` is a JSON list of rows.
INSERT INTO safety_evaluations (
    id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse,
    degraded, blocks, state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score,
    categories, issues
)
SELECT
    id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse,
    degraded, blocks, state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score,
    categories, issues
FROM json_to_recordset($1::json) AS given (
    id TEXT, exchange_id TEXT, tenant TEXT, subject TEXT, session_id TEXT, judged_at BIGINT, text_kind TEXT,
    choice BIGINT, round BIGINT, is_unsafe BOOLEAN, overrefuse BOOLEAN, degraded BOOLEAN, blocks BOOLEAN,
    state TEXT, level BIGINT, micros BIGINT, prompt_harm DOUBLE PRECISION, response_harm DOUBLE PRECISION,
    refusal DOUBLE PRECISION, safety_score DOUBLE PRECISION, helpfulness_score DOUBLE PRECISION,
    categories TEXT, issues TEXT
)
