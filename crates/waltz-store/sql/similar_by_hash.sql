SELECT request_hash, user_request, feedback, accepted, dir_score
FROM past_coachings
WHERE tenant = $1 AND request_hash = $2
ORDER BY dir_score DESC, number DESC
LIMIT $3
