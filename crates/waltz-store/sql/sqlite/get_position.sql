SELECT segment, position, (SELECT COUNT(*) FROM rejected_entries) AS rejected FROM journal_position WHERE id = 1
