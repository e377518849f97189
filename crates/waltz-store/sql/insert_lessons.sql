INSERT INTO lessons (exchange_id, kind, tenant, subject, agent, task_type, variant, learned, lesson)
VALUES {rows}
ON CONFLICT (exchange_id, kind) DO NOTHING
