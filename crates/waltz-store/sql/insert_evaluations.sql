INSERT INTO safety_evaluations (
    id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse,
    degraded, blocks, state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score,
    categories, issues
) VALUES {rows}
