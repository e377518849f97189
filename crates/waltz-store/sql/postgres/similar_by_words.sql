-- `$1` holds the words to look for with spaces between them; its first word is the tenant's, which every
-- text of the tenant has. The words that a text shares are weighed as bm25 weighs them: by how few texts
-- have them, and less in a long text. The bound on `number` keeps the cost from growing for ever.
WITH wanted AS (
    SELECT string_to_array($1, ' ') AS words
), candidate AS MATERIALIZED (
    SELECT coaching_text.number, coaching_text.words
    FROM coaching_text
    WHERE coaching_text.words @@ (
            SELECT ('''' || words[1] || ''' & (''' || array_to_string(words[2:], ''' | ''') || ''')')::tsquery
            FROM wanted
        )
        AND coaching_text.number > (SELECT COALESCE(MAX(number), 0) FROM past_coachings) - $2
), shared AS (
    SELECT candidate.number, length(candidate.words) AS size,
        COUNT(*) OVER (PARTITION BY word) AS texts, (SELECT COUNT(*) FROM candidate) AS total
    FROM candidate, wanted, unnest(tsvector_to_array(candidate.words)) AS word
    WHERE word = ANY (wanted.words[2:])
), found AS (
    SELECT number, SUM(ln((total + 1)::double precision / (texts + 0.5)) / (1 + ln(size::double precision))) AS nearness
    FROM shared
    GROUP BY number
    ORDER BY nearness DESC, number DESC
    LIMIT $3
)
SELECT past_coachings.number, past_coachings.request_hash, past_coachings.user_request, feedback, accepted, dir_score
FROM found JOIN past_coachings ON past_coachings.number = found.number
WHERE past_coachings.tenant = $4 AND past_coachings.request_hash <> $5
ORDER BY found.nearness DESC, found.number DESC
