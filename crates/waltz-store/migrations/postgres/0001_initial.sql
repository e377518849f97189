-- The same tables as in SQLite. Times are microseconds since 1970, scores are 0 to 1, `record` and the other
-- JSON columns are text, as they were written. Every row carries tenant and subject. Keys are compared byte
-- by byte (`COLLATE "C"`), as SQLite does, so that pages have the same order whatever the server's language.

CREATE TABLE exchanges (
    id TEXT COLLATE "C" PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    session_id TEXT COLLATE "C" NOT NULL,
    response_id TEXT COLLATE "C",
    started_at BIGINT NOT NULL,
    decision TEXT COLLATE "C" NOT NULL,
    status BIGINT NOT NULL,
    degraded TEXT,
    endpoint TEXT NOT NULL,
    agent TEXT NOT NULL,
    variant TEXT NOT NULL,
    task_type TEXT NOT NULL,
    risk TEXT NOT NULL,
    request_hash TEXT COLLATE "C" NOT NULL,
    -- Choices that had at least one coaching round, and the rounds and shaped scores of all of them.
    coached_choices BIGINT NOT NULL,
    rounds BIGINT NOT NULL,
    dir_score_sum DOUBLE PRECISION NOT NULL,
    -- Choices with a verdict on what the client got, and what those verdicts said.
    judged BIGINT NOT NULL,
    safe BIGINT NOT NULL,
    overrefused BIGINT NOT NULL,
    undecided BIGINT NOT NULL,
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
    tenant TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    started_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    exchanges BIGINT NOT NULL,
    coached_choices BIGINT NOT NULL,
    rounds BIGINT NOT NULL,
    dir_score_sum DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, session_id)
);
CREATE INDEX coaching_sessions_by_time ON coaching_sessions (last_at, session_id);
CREATE INDEX coaching_sessions_by_tenant ON coaching_sessions (tenant, last_at, session_id);

CREATE TABLE safety_evaluations (
    id TEXT COLLATE "C" PRIMARY KEY,
    exchange_id TEXT COLLATE "C" NOT NULL REFERENCES exchanges (id) ON DELETE CASCADE,
    tenant TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    session_id TEXT COLLATE "C" NOT NULL,
    judged_at BIGINT NOT NULL,
    text_kind TEXT NOT NULL,
    choice BIGINT,
    round BIGINT,
    is_unsafe BOOLEAN NOT NULL,
    overrefuse BOOLEAN NOT NULL,
    degraded BOOLEAN NOT NULL,
    blocks BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    level BIGINT NOT NULL,
    micros BIGINT NOT NULL,
    prompt_harm DOUBLE PRECISION NOT NULL,
    response_harm DOUBLE PRECISION NOT NULL,
    refusal DOUBLE PRECISION NOT NULL,
    safety_score DOUBLE PRECISION NOT NULL,
    helpfulness_score DOUBLE PRECISION NOT NULL,
    categories TEXT NOT NULL,
    issues TEXT NOT NULL
);
CREATE INDEX safety_evaluations_by_time ON safety_evaluations (judged_at, id);
CREATE INDEX safety_evaluations_by_exchange ON safety_evaluations (exchange_id);
CREATE INDEX safety_evaluations_with_harm ON safety_evaluations (tenant) WHERE categories <> '{}';

CREATE TABLE trajectories (
    id TEXT COLLATE "C" PRIMARY KEY,
    exchange_id TEXT COLLATE "C" NOT NULL REFERENCES exchanges (id) ON DELETE CASCADE,
    tenant TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    recorded_at BIGINT NOT NULL,
    request_hash TEXT COLLATE "C" NOT NULL,
    coaching_round BIGINT NOT NULL,
    state TEXT NOT NULL,
    action TEXT NOT NULL,
    next_state TEXT,
    terminal BOOLEAN NOT NULL,
    -- The answer of this step is what the client got, so that a rating speaks of it.
    answered BOOLEAN NOT NULL,
    safety_score DOUBLE PRECISION NOT NULL,
    helpfulness_score DOUBLE PRECISION NOT NULL,
    dir_score DOUBLE PRECISION NOT NULL
);
CREATE INDEX trajectories_by_time ON trajectories (recorded_at, id);
CREATE INDEX trajectories_by_exchange ON trajectories (exchange_id);

-- No reference to `exchanges`: a report may arrive before the exchange is drained.
CREATE TABLE outcomes (
    id TEXT COLLATE "C" PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    response_id TEXT COLLATE "C" NOT NULL,
    received_at BIGINT NOT NULL,
    success BOOLEAN,
    rating BIGINT,
    outcome TEXT NOT NULL
);
CREATE INDEX outcomes_by_response ON outcomes (response_id, tenant, received_at);

-- Coaching that ended well, as it is shown to later revisions of similar requests. Request, feedback and
-- accepted text are JSON strings: they may hold a NUL, which a text of PostgreSQL cannot.
CREATE TABLE past_coachings (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    exchange_id TEXT COLLATE "C" NOT NULL REFERENCES exchanges (id) ON DELETE CASCADE,
    choice BIGINT NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    request_hash TEXT COLLATE "C" NOT NULL,
    user_request TEXT NOT NULL,
    feedback TEXT NOT NULL,
    accepted TEXT NOT NULL,
    dir_score DOUBLE PRECISION NOT NULL,
    UNIQUE (exchange_id, choice)
);
CREATE INDEX past_coachings_by_hash ON past_coachings (tenant, request_hash, dir_score);

-- The words of a request as the program splits them, so that finding them does not hang on the server's
-- language. One of them stands for the tenant, so that a search never weighs another tenant's rows.
CREATE TABLE coaching_text (
    number BIGINT PRIMARY KEY REFERENCES past_coachings (number) ON DELETE CASCADE,
    words TSVECTOR NOT NULL
);
CREATE INDEX coaching_text_by_word ON coaching_text USING gin (words);

-- Entries that could not be stored, with the reason. Nothing that was acknowledged is thrown away.
-- `instance` is the gateway whose journal held the entry.
CREATE TABLE rejected_entries (
    instance TEXT COLLATE "C" NOT NULL,
    segment BIGINT NOT NULL,
    position BIGINT NOT NULL,
    reason TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (instance, segment, position)
);

-- One row per gateway: everything before this place in its journal is in the tables above.
CREATE TABLE journal_positions (
    instance TEXT COLLATE "C" PRIMARY KEY,
    segment BIGINT NOT NULL,
    position BIGINT NOT NULL
);
