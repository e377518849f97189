-- Fewer trees to write per exchange. Trajectories follow from the record and are made when they are exported.
DROP TABLE trajectories;

-- In the order of time, with the key as the table: an evaluation is found by the time and id of its exchange.
CREATE TABLE evaluations_by_time (
    id TEXT NOT NULL,
    exchange_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT,
    session_id TEXT NOT NULL,
    judged_at INTEGER NOT NULL,
    text_kind TEXT NOT NULL,
    choice INTEGER,
    round INTEGER,
    is_unsafe INTEGER NOT NULL,
    overrefuse INTEGER NOT NULL,
    degraded INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    state TEXT NOT NULL,
    level INTEGER NOT NULL,
    micros INTEGER NOT NULL,
    prompt_harm REAL NOT NULL,
    response_harm REAL NOT NULL,
    refusal REAL NOT NULL,
    safety_score REAL NOT NULL,
    helpfulness_score REAL NOT NULL,
    categories TEXT NOT NULL,
    issues TEXT NOT NULL,
    PRIMARY KEY (judged_at, id)
) WITHOUT ROWID;
INSERT INTO evaluations_by_time SELECT
    id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse,
    degraded, blocks, state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score,
    categories, issues
FROM safety_evaluations;
DROP TABLE safety_evaluations;
ALTER TABLE evaluations_by_time RENAME TO safety_evaluations;
CREATE INDEX safety_evaluations_with_harm ON safety_evaluations (tenant) WHERE categories <> '{}';

CREATE TABLE sessions_by_key (
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    subject TEXT,
    started_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    exchanges INTEGER NOT NULL,
    coached_choices INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    dir_score_sum REAL NOT NULL,
    PRIMARY KEY (tenant, session_id)
) WITHOUT ROWID;
INSERT INTO sessions_by_key SELECT
    tenant, session_id, subject, started_at, last_at, exchanges, coached_choices, rounds, dir_score_sum
FROM coaching_sessions;
DROP TABLE coaching_sessions;
ALTER TABLE sessions_by_key RENAME TO coaching_sessions;
CREATE INDEX coaching_sessions_by_time ON coaching_sessions (last_at, session_id);
CREATE INDEX coaching_sessions_by_tenant ON coaching_sessions (tenant, last_at, session_id);
