-- `$1` is a JSON list of rows. Request, feedback and accepted text are JSON strings inside of it, because
-- they may hold a NUL. `words` are letters and digits with spaces between them, `vector` is base64 or null.
WITH given AS (
    SELECT exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score, words,
        model, vector
    FROM json_to_recordset($1::json) AS listed (
        exchange_id TEXT, choice BIGINT, tenant TEXT, subject TEXT, request_hash TEXT, user_request TEXT,
        feedback TEXT, accepted TEXT, dir_score DOUBLE PRECISION, words TEXT, model TEXT, vector TEXT
    )
), added AS (
    INSERT INTO past_coachings (
        exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score
    )
    SELECT exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score
    FROM given
    RETURNING number, exchange_id, choice
), worded AS (
    INSERT INTO coaching_text (number, words)
    SELECT added.number, array_to_tsvector(string_to_array(given.words, ' '))
    FROM added JOIN given ON given.exchange_id = added.exchange_id AND given.choice = added.choice
)
INSERT INTO coaching_vectors (number, tenant, model, request_hash, vector)
SELECT added.number, given.tenant, given.model, given.request_hash, decode(given.vector, 'base64')
FROM added JOIN given ON given.exchange_id = added.exchange_id AND given.choice = added.choice
WHERE given.vector IS NOT NULL
