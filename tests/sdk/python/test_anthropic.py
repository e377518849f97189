"""Anthropic's official SDK against `/v1/messages`, on an upstream that speaks OpenAI's form."""

import hashlib

import anthropic
import pytest

from world import HARMFUL_PROMPT, HARMLESS_PROMPT, HELP, REFUSAL, SAFE, UNSAFE, UNSAFE_THEN_SAFE, leaked

ASK = [{"role": "user", "content": "Hello there"}]


def client_of(world, **options):
    root = str(world.http().base_url).rstrip("/")
    return anthropic.Anthropic(base_url=root, **{"api_key": "none", "max_retries": 0, **options})


def create(world, messages=ASK, **options):
    return client_of(world).messages.create(model="mock", max_tokens=100, messages=messages, **options)


def test_create(start):
    message = create(start([{"text": HELP}]), system="Be brief.")
    assert (message.type, message.role, message.stop_reason) == ("message", "assistant", "end_turn")
    assert [block.text for block in message.content] == [HELP]
    assert message.usage.output_tokens == len(HELP.split())
    assert message.model_extra["waltz"]["decision"] == "released"


def test_the_request_reaches_the_upstream_in_its_form(start):
    world = start([{"text": HELP}])
    create(world, system="Be brief.", stop_sequences=["END"], extra_body={"temperature": 0.5})
    (call,) = world.upstream_calls()
    sent = call["body"]
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["stop"] == ["END"] and sent["temperature"] == 0.5


def test_stream_helper(start):
    with client_of(start([{"text": HELP, "chunk_letters": 5}])).messages.stream(
        model="mock", max_tokens=100, messages=ASK
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == HELP
    assert final.content[0].text == HELP and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == len(HELP.split())


@pytest.mark.parametrize("streamed", [False, True])
def test_unsafe_then_safe(start, streamed):
    world = start(UNSAFE_THEN_SAFE)
    messages = [{"role": "user", "content": HARMFUL_PROMPT}]
    if streamed:
        with client_of(world).messages.stream(model="mock", max_tokens=100, messages=messages) as stream:
            message = stream.get_final_message()
    else:
        message = create(world, messages)
    assert message.content[0].text == SAFE
    assert leaked(UNSAFE, message.model_dump_json()) == []


def test_a_needless_refusal_is_mended(start):
    world = start([{"when": {"coached": True}, "text": HELP}, {"text": REFUSAL}])
    assert create(world, [{"role": "user", "content": HARMLESS_PROMPT}]).content[0].text == HELP


TOOL = {"name": "look_up", "description": "Looks up", "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}}}


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(start, streamed):
    world = start([{"tool_calls": [{"name": "look_up", "arguments": '{"place": "Paris"}'}]}])
    options = {"model": "mock", "max_tokens": 100, "messages": ASK, "tools": [TOOL]}
    if streamed:
        with client_of(world).messages.stream(**options) as stream:
            message = stream.get_final_message()
    else:
        message = client_of(world).messages.create(**options)
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert (use.name, use.input, message.stop_reason) == ("look_up", {"place": "Paris"}, "tool_use")
    answered = [
        *ASK,
        {"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]},
    ]
    create(world, answered, tools=[TOOL])
    roles = [message["role"] for message in world.upstream_calls()[-1]["body"]["messages"]]
    assert roles == ["user", "assistant", "tool"]


def test_errors_have_the_classes_of_the_sdk(start):
    world = start([{"text": HELP}], policy={"input": "block"})
    with pytest.raises(anthropic.BadRequestError) as caught:
        create(world, [{"role": "user", "content": HARMFUL_PROMPT}])
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.request_id.startswith("req_")
    assert world.upstream_calls() == []
    with pytest.raises(anthropic.BadRequestError):
        client_of(world).messages.create(model="mock", max_tokens=0, messages=ASK)


def test_a_wrong_key_is_an_authentication_error(start):
    world = start([{"text": HELP}], keys=[{"name": "app", "sha256": hashlib.sha256(b"right").hexdigest()}])
    with pytest.raises(anthropic.AuthenticationError):
        create(world)
    message = client_of(world, api_key="right").messages.create(model="mock", max_tokens=10, messages=ASK)
    assert message.content[0].text == HELP


def test_the_exchange_is_on_record(start):
    world = start([{"text": HELP}])
    raw = client_of(world).messages.with_raw_response.create(model="mock", max_tokens=100, messages=ASK)
    session = world.http().get(f"/waltz/v1/sessions/{raw.headers['x-waltz-session-id']}").json()
    record = session["exchanges"][0]["record"]
    assert (record["endpoint"], record["choices"][0]["final_text"]) == ("/v1/messages", HELP)


def test_tokens_are_counted_by_an_upstream_that_can(start):
    world = start(upstream={"protocol": "anthropic"})
    counted = client_of(world).messages.count_tokens(model="mock", system="Be brief.", messages=ASK)
    assert counted.input_tokens == 4
    (call,) = world.upstream_calls("/v1/messages/count_tokens")
    assert call["body"] == {"model": "mock", "system": "Be brief.", "messages": ASK}
    with pytest.raises(anthropic.NotFoundError, match="no upstream that serves it speaks Anthropic's form"):
        client_of(start()).messages.count_tokens(model="mock", messages=ASK)


def test_models_come_in_the_form_of_this_client(start):
    client = client_of(start())
    models = client.models.list()
    assert [(model.id, model.type, model.display_name) for model in models] == [("mock", "model", "mock")]
    assert client.models.retrieve("mock").created_at.year == 1970
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.models.retrieve("waltz/nobody")
    assert caught.value.body["error"]["type"] == "not_found_error"
