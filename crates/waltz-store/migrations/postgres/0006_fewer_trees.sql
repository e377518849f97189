-- The id of an answer names its exchange, which is found by its key.
DROP INDEX exchanges_by_response;

-- Evaluations follow from the record and are made when they are asked for. An exchange says what they found: 1 for an
-- unsafe text, 2 for a needless refusal, 4 for a verdict of a judge that was not at hand, 8 for harm of one half or more,
-- and the categories of that harm with commas between them.
ALTER TABLE exchanges ADD COLUMN findings BIGINT NOT NULL DEFAULT 0;
ALTER TABLE exchanges ADD COLUMN harms TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE exchanges SET findings = found.bits
FROM (
    SELECT exchange_id, bool_or(is_unsafe)::int + 2 * bool_or(overrefuse)::int + 4 * bool_or(degraded)::int AS bits
    FROM safety_evaluations
    GROUP BY exchange_id
) AS found
WHERE exchanges.id = found.exchange_id AND found.bits > 0;
UPDATE exchanges SET findings = findings + 8, harms = found.harms
FROM (
    SELECT exchange_id, string_agg(DISTINCT category.key, ',') AS harms
    FROM safety_evaluations, json_each_text(safety_evaluations.categories::json) AS category
    WHERE categories <> '{}' AND category.value::double precision >= 0.5
    GROUP BY exchange_id
) AS found
WHERE exchanges.id = found.exchange_id;
DROP TABLE safety_evaluations;
-- Without `harms`: a row of an index must not grow large.
CREATE INDEX exchanges_found ON exchanges (id, tenant, findings) WHERE findings <> 0;

-- Exchanges are counted when they are stored: one row per tenant and decision.
CREATE TABLE exchange_totals (
    tenant TEXT COLLATE "C" NOT NULL,
    decision TEXT COLLATE "C" NOT NULL,
    interactions BIGINT NOT NULL,
    -- Exchanges with at least one coaching round; the others are sums of the columns of `exchanges`.
    coached BIGINT NOT NULL,
    coached_choices BIGINT NOT NULL,
    rounds BIGINT NOT NULL,
    dir_score_sum DOUBLE PRECISION NOT NULL,
    judged BIGINT NOT NULL,
    safe BIGINT NOT NULL,
    overrefused BIGINT NOT NULL,
    undecided BIGINT NOT NULL,
    PRIMARY KEY (tenant, decision)
);
INSERT INTO exchange_totals
SELECT tenant, decision, COUNT(*), SUM(CASE WHEN coached_choices > 0 THEN 1 ELSE 0 END), SUM(coached_choices), SUM(rounds),
    SUM(dir_score_sum), SUM(judged), SUM(safe), SUM(overrefused), SUM(undecided)
FROM exchanges
GROUP BY tenant, decision;
DROP INDEX exchanges_counted;
