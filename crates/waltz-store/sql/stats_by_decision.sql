SELECT decision, COUNT(*) AS interactions,
    CAST(COALESCE(SUM(CASE WHEN coached_choices > 0 THEN 1 ELSE 0 END), 0) AS BIGINT) AS coached,
    CAST(COALESCE(SUM(coached_choices), 0) AS BIGINT) AS coached_choices,
    CAST(COALESCE(SUM(rounds), 0) AS BIGINT) AS rounds,
    COALESCE(SUM(dir_score_sum), 0.0) AS dir_score_sum,
    CAST(COALESCE(SUM(judged), 0) AS BIGINT) AS judged,
    CAST(COALESCE(SUM(safe), 0) AS BIGINT) AS safe,
    CAST(COALESCE(SUM(overrefused), 0) AS BIGINT) AS overrefused,
    CAST(COALESCE(SUM(undecided), 0) AS BIGINT) AS undecided
FROM exchanges
WHERE $1 IS NULL OR tenant = $1
GROUP BY decision
ORDER BY decision
