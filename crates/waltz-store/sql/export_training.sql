SELECT id, record, (
    SELECT rating FROM outcomes
    WHERE outcomes.response_id = exchanges.response_id AND outcomes.tenant = exchanges.tenant AND rating IS NOT NULL
    ORDER BY received_at DESC, outcomes.id DESC LIMIT 1
) AS rating
FROM exchanges
WHERE $1 IS NULL OR tenant = $1
ORDER BY id
