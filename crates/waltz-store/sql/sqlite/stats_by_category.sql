SELECT category.key AS category, COUNT(DISTINCT exchange_id) AS exchanges
FROM safety_evaluations, json_each(safety_evaluations.categories) AS category
WHERE categories <> '{}' AND ($1 IS NULL OR tenant = $1) AND category.value >= 0.5
GROUP BY category.key
ORDER BY category.key
