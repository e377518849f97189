SELECT id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse, blocks,
    state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score, categories, issues
FROM safety_evaluations
WHERE $1 IS NULL OR tenant = $1
ORDER BY judged_at, id
