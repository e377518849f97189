SELECT id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse, blocks,
    state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score, categories, issues
FROM safety_evaluations
WHERE ($1 IS NULL OR tenant = $1)
    AND (judged_at, id) < ($2, $3)
    AND CASE $4
        WHEN 'safe' THEN NOT is_unsafe AND state = 'decided'
        WHEN 'unsafe' THEN is_unsafe
        WHEN 'overrefuse' THEN overrefuse
        WHEN 'degraded' THEN degraded
        ELSE TRUE
    END
ORDER BY judged_at DESC, id DESC
LIMIT $5
