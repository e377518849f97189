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

-- Exchanges are counted when they are stored: one row per tenant and decision.
CREATE TABLE exchange_totals (
    tenant TEXT NOT NULL,
    decision TEXT NOT NULL,
    interactions INTEGER NOT NULL,
    -- Exchanges with at least one coaching round; the others are sums of the columns of `exchanges`.
    coached INTEGER NOT NULL,
    coached_choices INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    dir_score_sum REAL NOT NULL,
    judged INTEGER NOT NULL,
    safe INTEGER NOT NULL,
    overrefused INTEGER NOT NULL,
    undecided INTEGER NOT NULL,
    PRIMARY KEY (tenant, decision)
) WITHOUT ROWID;
INSERT INTO exchange_totals
SELECT tenant, decision, COUNT(*), SUM(CASE WHEN coached_choices > 0 THEN 1 ELSE 0 END), SUM(coached_choices), SUM(rounds),
    SUM(dir_score_sum), SUM(judged), SUM(safe), SUM(overrefused), SUM(undecided)
FROM exchanges
GROUP BY tenant, decision;
DROP INDEX exchanges_counted;
