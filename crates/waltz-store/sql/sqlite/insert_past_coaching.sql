INSERT INTO past_coachings (
    exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
RETURNING number
