-- What the requests of past coachings mean to a model: 4-byte floats, lowest byte first. Only vectors of the same
-- model are ever compared. A coaching whose request no model has read has no row here.
CREATE TABLE coaching_vectors (
    number BIGINT PRIMARY KEY REFERENCES past_coachings (number) ON DELETE CASCADE,
    tenant TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    request_hash TEXT COLLATE "C" NOT NULL,
    vector BYTEA NOT NULL
);
CREATE INDEX coaching_vectors_by_model ON coaching_vectors (tenant, model, number);
