"""Error classes: every failure is the exception that the SDK's users expect."""

import hashlib
import json

import openai
import pytest

from world import HELP

HELLO = [{"role": "user", "content": "Hello there"}]
NO_RETRIES = {"retry": {"max_retries": 0}}


def fails(client, kind, **options):
    """Makes a request that must fail, and returns the exception."""
    request = {"model": "mock", "messages": HELLO, **options}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**request)
    error = caught.value
    assert type(error) is kind
    # All four keys are always there, and the request id is what the operator finds in the record.
    assert set(error.body) == {"message", "type", "param", "code"}
    assert isinstance(error.body["message"], str) and error.body["message"]
    assert isinstance(error.type, str) and isinstance(error.code, str)
    assert error.request_id and error.request_id.startswith("req_")
    assert error.response.headers["content-type"] == "application/json"
    return error


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"n": 0}, "n"),
        ({"n": "two"}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"model": ""}, "model"),
        ({"response_format": "json"}, "response_format"),
    ],
)
def test_a_bad_request_names_the_field(start, options, param):
    world = start([{"text": HELP}])
    client = world.client()
    error = fails(client, openai.BadRequestError, **options)
    assert error.status_code == 400 and error.type == "invalid_request_error"
    assert error.param == param
    assert len(client.sent) == 1 and world.upstream_calls() == []


def test_a_rejection_by_the_upstream_is_passed_on(start):
    error = fails(start([{"status": 422}]).client(), openai.UnprocessableEntityError)
    assert error.body["message"] == "scripted failure"


def upstream_error(status, **error):
    body = {"error": {"message": "told", "type": "invalid_request_error", "param": None, "code": None, **error}}
    return {"status": status, "raw": json.dumps(body), "headers": {"content-type": "application/json"}}


def test_the_upstreams_error_code_reaches_the_client(start):
    """Applications shorten the conversation when they see `context_length_exceeded`."""
    world = start([upstream_error(400, code="context_length_exceeded", param="messages")])
    error = fails(world.client(), openai.BadRequestError)
    assert error.body["message"] == "told"
    assert (error.code, error.param) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize("status", [408, 409])
def test_what_the_sdk_would_retry_stays_retryable(start, status):
    world = start([upstream_error(status)], **NO_RETRIES)
    with pytest.raises(openai.APIStatusError) as caught:
        world.client(max_retries=0).chat.completions.create(model="mock", messages=HELLO)
    assert caught.value.response.headers.get("x-should-retry") != "false"


KEY = "sk-waltz-test"
KEYS = [{"name": "app", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]


def test_a_wrong_key_is_an_authentication_error(start):
    world = start([{"text": HELP}], keys=KEYS)
    client = world.client(api_key="wrong")
    error = fails(client, openai.AuthenticationError)
    assert error.status_code == 401 and error.code == "invalid_api_key"
    assert len(client.sent) == 1 and world.upstream_calls() == []
    assert "wrong" not in error.response.text


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.models.list(),
        lambda client: client.models.retrieve("mock"),
        lambda client: client.embeddings.create(model="mock", input="x"),
        lambda client: client.moderations.create(input="x"),
    ],
)
def test_every_path_wants_the_key(start, call):
    world = start([{"text": HELP}], keys=KEYS)
    with pytest.raises(openai.AuthenticationError):
        call(world.client(api_key="wrong"))
    call(world.client(api_key=KEY))


def test_the_right_key_works(start):
    world = start([{"text": HELP}], keys=KEYS)
    answer = world.client(api_key=KEY).chat.completions.create(model="mock", messages=HELLO)
    assert answer.choices[0].message.content == HELP
    assert KEY not in str(world.upstream_calls())


def test_an_unknown_model_is_not_found(start):
    world = start([{"text": HELP}])
    client = world.client()
    error = fails(client, openai.NotFoundError, model="gpt-unknown")
    assert error.code == "model_not_found" and error.param == "model"
    assert "gpt-unknown" in error.message
    assert len(client.sent) == 1 and world.upstream_calls() == []


def test_an_unknown_path_is_not_found(start):
    with pytest.raises(openai.NotFoundError) as caught:
        start().client().fine_tuning.jobs.list()
    assert caught.value.code == "unknown_url"
    assert caught.value.request_id.startswith("req_")


def test_a_rate_limit_is_passed_on_with_its_wait(start):
    world = start([{"status": 429, "headers": {"retry-after": "7"}}])
    error = fails(world.client(max_retries=0), openai.RateLimitError)
    assert error.status_code == 429 and error.code == "rate_limit_exceeded"
    assert error.body["message"] == "scripted failure"
    assert error.response.headers["retry-after"] == "7"
    assert error.response.headers["retry-after-ms"] == "7000"
    assert len(world.upstream_calls()) == 1, "a rate limit gets worse from more calls"


@pytest.mark.parametrize("status", [500, 503])
def test_a_failing_upstream_is_an_internal_server_error(start, status):
    world = start([{"status": status}], **NO_RETRIES)
    error = fails(world.client(max_retries=0), openai.InternalServerError)
    assert error.status_code == 502 and error.code == "upstream_unavailable"
    assert world.mock_url not in error.response.text, "addresses of upstreams are nobody's business"
    assert len(world.upstream_calls()) == 1


def test_the_gateways_own_bad_key_is_not_the_clients_fault(start):
    """A 401 of the upstream must not make the client believe that its key is wrong."""
    client = start([{"status": 401}], **NO_RETRIES).client()
    error = fails(client, openai.InternalServerError)
    assert error.code == "upstream_auth"
    assert len(client.sent) == 1, "no retry can mend it"


def test_nonsense_from_the_upstream_is_an_internal_server_error(start):
    world = start([{"raw": "<html>busy</html>"}], **NO_RETRIES)
    error = fails(world.client(max_retries=0), openai.InternalServerError)
    assert error.code == "upstream_invalid_answer"


def test_a_passing_fault_is_mended_without_the_client(start):
    world = start([{"times": 1, "status": 500}, {"text": HELP}])
    client = world.client()
    assert client.chat.completions.create(model="mock", messages=HELLO).choices[0].message.content == HELP
    assert len(client.sent) == 1 and len(world.upstream_calls()) == 2


def test_a_body_that_is_too_large(start):
    world = start([{"text": HELP}], server={"max_body_bytes": 2000})
    long = [{"role": "user", "content": "x" * 3000}]
    with pytest.raises(openai.APIStatusError) as caught:
        world.client().chat.completions.create(model="mock", messages=long)
    assert caught.value.status_code == 413 and caught.value.code == "request_too_large"
    assert caught.value.request_id.startswith("req_")
