SELECT tenant, session_id, subject, started_at, last_at, exchanges, coached_choices, rounds, dir_score_sum
FROM coaching_sessions
WHERE session_id = $1 AND ($2 IS NULL OR tenant = $2)
ORDER BY last_at DESC, tenant
LIMIT 1
