SELECT id, exchange_id, tenant, request_hash, state, action, next_state, terminal, safety_score, helpfulness_score,
    dir_score, CASE WHEN answered THEN (
        SELECT rating FROM exchanges
        JOIN outcomes ON outcomes.response_id = exchanges.response_id AND outcomes.tenant = exchanges.tenant
        WHERE exchanges.id = trajectories.exchange_id AND rating IS NOT NULL
        ORDER BY received_at DESC, outcomes.id DESC LIMIT 1
    ) END AS rating
FROM trajectories
WHERE $1 IS NULL OR tenant = $1
ORDER BY recorded_at, id
