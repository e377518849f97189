UPDATE journal_position SET segment = $1, position = $2 WHERE id = 1
