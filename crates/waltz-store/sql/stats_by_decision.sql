SELECT decision, CAST(SUM(interactions) AS BIGINT) AS interactions, CAST(SUM(coached) AS BIGINT) AS coached,
    CAST(SUM(coached_choices) AS BIGINT) AS coached_choices, CAST(SUM(rounds) AS BIGINT) AS rounds,
    SUM(dir_score_sum) AS dir_score_sum, CAST(SUM(judged) AS BIGINT) AS judged, CAST(SUM(safe) AS BIGINT) AS safe,
    CAST(SUM(overrefused) AS BIGINT) AS overrefused, CAST(SUM(undecided) AS BIGINT) AS undecided
FROM exchange_totals
WHERE $1 IS NULL OR tenant = $1
GROUP BY decision
ORDER BY decision
