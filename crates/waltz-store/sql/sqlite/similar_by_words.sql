-- The inner query runs on the full-text index alone: `tenant_key` keeps to the tenant, and the bound on
-- `rowid` keeps the cost of a search from growing for ever.
SELECT past_coachings.number, past_coachings.request_hash, past_coachings.user_request, feedback, accepted, dir_score
FROM (
    SELECT rowid AS number, bm25(coaching_text, 0.0, 1.0) AS distance
    FROM coaching_text
    WHERE coaching_text MATCH $1 AND rowid > (SELECT COALESCE(MAX(number), 0) FROM past_coachings) - $2
    ORDER BY distance, number DESC
    LIMIT $3
) AS found JOIN past_coachings ON past_coachings.number = found.number
WHERE past_coachings.tenant = $4 AND past_coachings.request_hash <> $5
ORDER BY found.distance, found.number DESC
