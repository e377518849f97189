SELECT lessons.exchange_id, lessons.lesson, exchanges.record
FROM lessons JOIN exchanges ON exchanges.id = lessons.exchange_id
WHERE lessons.learned AND lessons.refused IS NULL AND lessons.kind <> 'shadow'
    AND lessons.agent = $1 AND (lessons.task_type = $2 OR $2 IS NULL)
-- What the client reported stands before what the judge said.
ORDER BY lessons.exchange_id, CASE lessons.kind WHEN 'reported' THEN 0 ELSE 1 END
