-- Times are microseconds since 1970, labels are 0 or 1, scores are 0 to 1, `record` and the other JSON
-- columns are text. Every row carries tenant and subject.

CREATE TABLE exchanges (
    id TEXT PRIMARY KEY NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT,
    session_id TEXT NOT NULL,
    response_id TEXT,
    started_at INTEGER NOT NULL,
    decision TEXT NOT NULL,
    status INTEGER NOT NULL,
    degraded TEXT,
    endpoint TEXT NOT NULL,
    agent TEXT NOT NULL,
    variant TEXT NOT NULL,
    task_type TEXT NOT NULL,
    risk TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    -- Choices that had at least one coaching round, and the rounds and shaped scores of all of them.
    coached_choices INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    dir_score_sum REAL NOT NULL,
    -- Choices with a verdict on what the client got, and what those verdicts said.
    judged INTEGER NOT NULL,
    safe INTEGER NOT NULL,
    overrefused INTEGER NOT NULL,
    undecided INTEGER NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX exchanges_by_session ON exchanges (session_id, tenant, started_at);
CREATE INDEX exchanges_by_response ON exchanges (response_id, tenant) WHERE response_id IS NOT NULL;
-- Covers the statistics, which must not read whole records.
CREATE INDEX exchanges_counted ON exchanges (
    tenant, decision, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided
);
CREATE INDEX exchanges_coached ON exchanges (started_at, id) WHERE coached_choices > 0;

CREATE TABLE coaching_sessions (
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
);
CREATE INDEX coaching_sessions_by_time ON coaching_sessions (last_at, session_id);
CREATE INDEX coaching_sessions_by_tenant ON coaching_sessions (tenant, last_at, session_id);

CREATE TABLE safety_evaluations (
    id TEXT PRIMARY KEY NOT NULL,
    exchange_id TEXT NOT NULL REFERENCES exchanges (id) ON DELETE CASCADE,
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
    issues TEXT NOT NULL
);
CREATE INDEX safety_evaluations_by_time ON safety_evaluations (judged_at, id);
CREATE INDEX safety_evaluations_by_exchange ON safety_evaluations (exchange_id);
CREATE INDEX safety_evaluations_with_harm ON safety_evaluations (tenant) WHERE categories <> '{}';

CREATE TABLE trajectories (
    id TEXT PRIMARY KEY NOT NULL,
    exchange_id TEXT NOT NULL REFERENCES exchanges (id) ON DELETE CASCADE,
    tenant TEXT NOT NULL,
    subject TEXT,
    recorded_at INTEGER NOT NULL,
    request_hash TEXT NOT NULL,
    coaching_round INTEGER NOT NULL,
    state TEXT NOT NULL,
    action TEXT NOT NULL,
    next_state TEXT,
    terminal INTEGER NOT NULL,
    -- The answer of this step is what the client got, so that a rating speaks of it.
    answered INTEGER NOT NULL,
    safety_score REAL NOT NULL,
    helpfulness_score REAL NOT NULL,
    dir_score REAL NOT NULL
);
CREATE INDEX trajectories_by_time ON trajectories (recorded_at, id);
CREATE INDEX trajectories_by_exchange ON trajectories (exchange_id);

-- No reference to `exchanges`: a report may arrive before the exchange is drained.
CREATE TABLE outcomes (
    id TEXT PRIMARY KEY NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT,
    response_id TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    success INTEGER,
    rating INTEGER,
    outcome TEXT NOT NULL
);
CREATE INDEX outcomes_by_response ON outcomes (response_id, tenant, received_at);

-- Coaching that ended well, as it is shown to later revisions of similar requests.
CREATE TABLE past_coachings (
    number INTEGER PRIMARY KEY,
    exchange_id TEXT NOT NULL REFERENCES exchanges (id) ON DELETE CASCADE,
    choice INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT,
    request_hash TEXT NOT NULL,
    user_request TEXT NOT NULL,
    feedback TEXT NOT NULL,
    accepted TEXT NOT NULL,
    dir_score REAL NOT NULL,
    UNIQUE (exchange_id, choice)
);
CREATE INDEX past_coachings_by_hash ON past_coachings (tenant, request_hash, dir_score);

-- `tenant_key` is one token, so that a search never scores another tenant's rows.
CREATE VIRTUAL TABLE coaching_text USING fts5 (
    tenant_key, user_request, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);

-- Entries that could not be stored, with the reason. Nothing that was acknowledged is thrown away.
CREATE TABLE rejected_entries (
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL,
    reason TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (segment, position)
);

-- One row: everything before this place in the journal is in the tables above.
CREATE TABLE journal_position (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL
);
INSERT INTO journal_position (id, segment, position) VALUES (1, 0, 0);
