INSERT OR FAIL INTO coaching_sessions (
    tenant, session_id, subject, started_at, last_at, exchanges, coached_choices, rounds, dir_score_sum
) VALUES {rows}
ON CONFLICT (tenant, session_id) DO UPDATE SET
    subject = COALESCE(coaching_sessions.subject, excluded.subject),
    started_at = MIN(coaching_sessions.started_at, excluded.started_at),
    last_at = MAX(coaching_sessions.last_at, excluded.last_at),
    exchanges = coaching_sessions.exchanges + excluded.exchanges,
    coached_choices = coaching_sessions.coached_choices + excluded.coached_choices,
    rounds = coaching_sessions.rounds + excluded.rounds,
    dir_score_sum = coaching_sessions.dir_score_sum + excluded.dir_score_sum
