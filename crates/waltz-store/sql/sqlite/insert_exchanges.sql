-- OR FAIL: a statement that fails needs no copy of the pages it changed, as its whole transaction is undone.
INSERT OR FAIL INTO exchanges (
    id, tenant, subject, session_id, response_id, started_at, decision, status, degraded, endpoint, agent, variant,
    task_type, risk, request_hash, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided,
    findings, harms, record
) VALUES {rows}
ON CONFLICT (id) DO NOTHING
