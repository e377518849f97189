SELECT tenant, session_id, subject, started_at, last_at, exchanges, coached_choices, rounds, dir_score_sum
FROM coaching_sessions
WHERE (last_at, session_id, tenant) < ($1, $2, $3)
ORDER BY last_at DESC, session_id DESC, tenant DESC
LIMIT $4
