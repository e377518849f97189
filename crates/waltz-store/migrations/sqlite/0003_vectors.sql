-- What the requests of past coachings mean to a model: 4-byte floats, lowest byte first. Only vectors of the same
-- model are ever compared. A coaching whose request no model has read has no row here.
CREATE TABLE coaching_vectors (
    number INTEGER PRIMARY KEY REFERENCES past_coachings (number) ON DELETE CASCADE,
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    vector BLOB NOT NULL
);
CREATE INDEX coaching_vectors_by_model ON coaching_vectors (tenant, model, number);
