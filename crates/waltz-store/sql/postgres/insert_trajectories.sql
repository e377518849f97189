-- `$1` is a JSON list of rows.
INSERT INTO trajectories (
    id, exchange_id, tenant, subject, recorded_at, request_hash, coaching_round, state, action, next_state,
    terminal, answered, safety_score, helpfulness_score, dir_score
)
SELECT
    id, exchange_id, tenant, subject, recorded_at, request_hash, coaching_round, state, action, next_state,
    terminal, answered, safety_score, helpfulness_score, dir_score
FROM json_to_recordset($1::json) AS given (
    id TEXT, exchange_id TEXT, tenant TEXT, subject TEXT, recorded_at BIGINT, request_hash TEXT,
    coaching_round BIGINT, state TEXT, action TEXT, next_state TEXT, terminal BOOLEAN, answered BOOLEAN,
    safety_score DOUBLE PRECISION, helpfulness_score DOUBLE PRECISION, dir_score DOUBLE PRECISION
)
