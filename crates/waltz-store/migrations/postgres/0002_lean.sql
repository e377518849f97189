-- Fewer trees to write per exchange. Trajectories follow from the record and are made when they are exported.
DROP TABLE trajectories;

-- In the order of time: an evaluation is found by the time and id of its exchange.
DROP INDEX safety_evaluations_by_time;
DROP INDEX safety_evaluations_by_exchange;
ALTER TABLE safety_evaluations DROP CONSTRAINT safety_evaluations_exchange_id_fkey;
ALTER TABLE safety_evaluations DROP CONSTRAINT safety_evaluations_pkey;
ALTER TABLE safety_evaluations ADD PRIMARY KEY (judged_at, id);
