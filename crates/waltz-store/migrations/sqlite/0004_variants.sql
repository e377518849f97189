-- The state of the variants of one agent and task type, as JSON. `version` counts its writes, for compare-and-swap;
-- `changed` is the version of `rollout_state` that the last of them made.
CREATE TABLE boards (
    agent TEXT NOT NULL,
    task_type TEXT NOT NULL,
    version INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (agent, task_type)
);
CREATE INDEX boards_changed ON boards (changed);

-- What came of answers of variants. Each is learned once: in the transaction that writes its board. `refused` says
-- why one could not be learned.
CREATE TABLE lessons (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    exchange_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT,
    agent TEXT NOT NULL,
    task_type TEXT NOT NULL,
    variant TEXT NOT NULL,
    learned INTEGER NOT NULL,
    refused TEXT,
    lesson TEXT NOT NULL,
    UNIQUE (exchange_id, kind)
);
CREATE INDEX lessons_open ON lessons (number) WHERE NOT learned;
CREATE INDEX lessons_of_variant ON lessons (agent, task_type, variant, number) WHERE learned;

-- What happened on the boards, in order.
CREATE TABLE rollout_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    agent TEXT NOT NULL,
    task_type TEXT NOT NULL,
    event TEXT NOT NULL
);
CREATE INDEX rollout_events_of_board ON rollout_events (agent, task_type, number);

-- Rollbacks, with what people said of them. `notified`: a gateway has taken on to tell others.
CREATE TABLE rollbacks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    review TEXT,
    notified INTEGER NOT NULL,
    event TEXT NOT NULL
);
CREATE INDEX rollbacks_untold ON rollbacks (number) WHERE NOT notified;

-- Changes that wait for a decision, and those that were decided on. `version` counts the decisions.
CREATE TABLE proposals (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    proposal TEXT NOT NULL
);

-- One row. `version` counts every change of the tables above but `lessons`, so that a gateway sees with one question
-- whether there is news; `paused` is the kill switch.
CREATE TABLE rollout_state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    paused TEXT,
    proposed_at INTEGER NOT NULL
);
INSERT INTO rollout_state (one, version, paused, proposed_at) VALUES (1, 0, NULL, 0);
