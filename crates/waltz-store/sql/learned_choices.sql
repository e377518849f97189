SELECT lessons.exchange_id, lessons.lesson, exchanges.record
FROM lessons JOIN exchanges ON exchanges.id = lessons.exchange_id
WHERE lessons.learned AND lessons.refused IS NULL AND lessons.kind <> 'shadow'
    AND lessons.agent = $1 AND (lessons.task_type = $2 OR $2 IS NULL)
ORDER BY lessons.exchange_id, lessons.kind
