SELECT user_request, feedback, accepted, dir_score
FROM past_coachings
WHERE number = $1
