SELECT tenant, session_id, subject, started_at, last_at, exchanges, coached_choices, rounds, dir_score_sum
FROM coaching_sessions
WHERE tenant = $1 AND (last_at, session_id) < ($2, $3)
ORDER BY last_at DESC, session_id DESC
LIMIT $4
