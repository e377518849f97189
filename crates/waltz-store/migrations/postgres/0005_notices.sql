-- `told`: others need not be told of an event, or a gateway has taken that on. Rollbacks are events too.
DROP INDEX rollbacks_untold;
ALTER TABLE rollbacks DROP COLUMN notified;
ALTER TABLE rollout_events ADD COLUMN told BOOLEAN NOT NULL DEFAULT TRUE;
CREATE INDEX rollout_events_untold ON rollout_events (number) WHERE NOT told;

-- What all gateways on this database sign the ids of answers with; made by the first of them.
ALTER TABLE rollout_state ADD COLUMN secret TEXT;
