-- The id of an answer names its exchange, which is found by its key.
DROP INDEX exchanges_by_response;

-- Evaluations follow from the record and are made when they are asked for. An exchange says what they found: 1 for an
-- unsafe text, 2 for a needless refusal, 4 for a verdict of a judge that was not at hand, 8 for harm of one half or more,
-- and the categories of that harm with commas between them.
ALTER TABLE exchanges ADD COLUMN findings INTEGER NOT NULL DEFAULT 0;
ALTER TABLE exchanges ADD COLUMN harms TEXT NOT NULL DEFAULT '';
UPDATE exchanges SET findings = found.bits
FROM (
    SELECT exchange_id, MAX(is_unsafe) + 2 * MAX(overrefuse) + 4 * MAX(degraded) AS bits
    FROM safety_evaluations
    GROUP BY exchange_id
) AS found
WHERE exchanges.id = found.exchange_id AND found.bits > 0;
UPDATE exchanges SET findings = findings + 8, harms = found.harms
FROM (
    SELECT exchange_id, group_concat(DISTINCT category.key) AS harms
    FROM safety_evaluations, json_each(safety_evaluations.categories) AS category
    WHERE categories <> '{}' AND category.value >= 0.5
    GROUP BY exchange_id
) AS found
WHERE exchanges.id = found.exchange_id;
DROP TABLE safety_evaluations;
CREATE INDEX exchanges_found ON exchanges (id, tenant, findings, harms) WHERE findings <> 0;
