-- The id of an answer names its exchange, which is found by its key.
DROP INDEX exchanges_by_response;
