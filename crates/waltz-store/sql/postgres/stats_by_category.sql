SELECT category.key AS category, COUNT(DISTINCT exchange_id) AS exchanges
FROM safety_evaluations, json_each_text(safety_evaluations.categories::json) AS category
WHERE categories <> '{}' AND ($1 IS NULL OR tenant = $1) AND category.value::double precision >= 0.5
GROUP BY category.key
ORDER BY category.key COLLATE "C"
