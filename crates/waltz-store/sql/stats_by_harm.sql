SELECT harms, COUNT(*) AS exchanges
FROM exchanges
WHERE findings <> 0 AND harms <> '' AND ($1 IS NULL OR tenant = $1)
GROUP BY harms
