-- `$1` is a JSON list of rows. Request, feedback and accepted text are JSON strings inside of it, because
-- they may hold a NUL. `words` are letters and digits with spaces between them.
WITH given AS (
    SELECT exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score, words
    FROM json_to_recordset($1::json) AS listed (
        exchange_id TEXT, choice BIGINT, tenant TEXT, subject TEXT, request_hash TEXT, user_request TEXT,
        feedback TEXT, accepted TEXT, dir_score DOUBLE PRECISION, words TEXT
    )
), added AS (
    INSERT INTO past_coachings (
        exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score
    )
    SELECT exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score
    FROM given
    RETURNING number, exchange_id, choice
)
INSERT INTO coaching_text (number, words)
SELECT added.number, array_to_tsvector(string_to_array(given.words, ' '))
FROM added JOIN given ON given.exchange_id = added.exchange_id AND given.choice = added.choice
