-- The state of the variants of one agent and task type, as JSON. `version` counts its writes, for compare-and-swap;
-- `changed` is the version of `rollout_state` that the last of them made.
CREATE TABLE boards (
    agent TEXT COLLATE "C" NOT NULL,
    task_type TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (agent, task_type)
);
CREATE INDEX boards_changed ON boards (changed);

-- What came of answers of variants. Each is learned once: in the transaction that writes its board. `refused` says
-- why one could not be learned.
CREATE TABLE lessons (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    exchange_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C",
    agent TEXT COLLATE "C" NOT NULL,
    task_type TEXT COLLATE "C" NOT NULL,
    variant TEXT COLLATE "C" NOT NULL,
    learned BOOLEAN NOT NULL,
    refused TEXT,
    lesson TEXT NOT NULL,
    UNIQUE (exchange_id, kind)
);
CREATE INDEX lessons_open ON lessons (number) WHERE NOT learned;
CREATE INDEX lessons_of_variant ON lessons (agent, task_type, variant, number) WHERE learned;

-- What happened on the boards, in order.
CREATE TABLE rollout_events (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    task_type TEXT COLLATE "C" NOT NULL,
    event TEXT NOT NULL
);
CREATE INDEX rollout_events_of_board ON rollout_events (agent, task_type, number);

-- Rollbacks, with what people said of them. `notified`: a gateway has taken on to tell others.
CREATE TABLE rollbacks (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    status TEXT NOT NULL,
    review TEXT,
    notified BOOLEAN NOT NULL,
    event TEXT NOT NULL
);
CREATE INDEX rollbacks_untold ON rollbacks (number) WHERE NOT notified;

-- Changes that wait for a decision, and those that were decided on. `version` counts the decisions.
CREATE TABLE proposals (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    version BIGINT NOT NULL,
    status TEXT NOT NULL,
    proposal TEXT NOT NULL
);

-- One row. `version` counts every change of the tables above but `lessons`, so that a gateway sees with one question
-- whether there is news; `paused` is the kill switch.
CREATE TABLE rollout_state (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    version BIGINT NOT NULL,
    paused TEXT,
    proposed_at BIGINT NOT NULL
);
INSERT INTO rollout_state (one, version, paused, proposed_at) VALUES (1, 0, NULL, 0);
