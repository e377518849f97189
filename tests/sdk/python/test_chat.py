"""Plain answers: create, extras, headers, and requests of every kind (F-24, F-25)."""

import pytest
from openai.types.chat import ChatCompletion

from world import HELP, SAFE, UNSAFE, leaked

HELLO = [{"role": "user", "content": "Hello there"}]


def test_create_returns_the_upstreams_answer(start):
    client = start([{"text": HELP}]).client()
    answer = client.chat.completions.create(model="mock", messages=HELLO)
    assert isinstance(answer, ChatCompletion)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.model == "mock"
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert choice.message.role == "assistant"
    assert choice.message.content == HELP
    assert choice.message.refusal is None and choice.message.tool_calls is None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert len(client.sent) == 1


def test_the_waltz_object_is_reachable_without_changing_the_sdk(start):
    answer = start([{"text": HELP}]).client().chat.completions.create(model="mock", messages=HELLO)
    told = answer.model_extra["waltz"]
    assert told["version"] == 1
    assert told["decision"] == "released" and told["rounds"] == 0
    assert told["safety_score"] == 1.0 and told["helpfulness_score"] == 1.0
    assert told["degraded"] is None
    assert told["evaluation_id"] == answer._request_id
    assert told["scanned"]["answer_bytes"] == len(HELP)


def test_annotations_can_be_switched_off(start):
    client = start([{"text": HELP}]).client(default_headers={"x-waltz-annotations": "off"})
    answer = client.chat.completions.create(model="mock", messages=HELLO)
    assert answer.choices[0].message.content == HELP
    assert not answer.model_extra


def test_waltz_headers_with_raw_response(start):
    client = start([{"text": HELP}]).client()
    raw = client.chat.completions.with_raw_response.create(
        model="mock", messages=HELLO, extra_headers={"x-waltz-session-id": "my-session"}
    )
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-waltz-decision"] == "released"
    assert raw.headers["x-waltz-rounds"] == "0"
    assert raw.headers["x-waltz-stage"] == "1"
    assert raw.headers["x-waltz-variant"] == "default"
    assert raw.headers["x-waltz-session-id"] == "my-session"
    assert float(raw.headers["x-waltz-overhead-ms"]) >= 0
    assert "x-waltz-degraded" not in raw.headers
    assert raw.headers["x-request-id"] == raw.parse()._request_id


def test_unknown_fields_reach_the_upstream_untouched(start):
    world = start([{"text": HELP}])
    extra = {"novel_field": {"deep": [1, 2.5, None, "ä€"]}, "top_k": 40, "reasoning_effort": "low"}
    sent = {"model": "mock", "messages": HELLO, "seed": 7, "temperature": 0.25, "logit_bias": {"50256": -100}}
    world.client().chat.completions.create(**sent, extra_body=extra)
    (call,) = world.upstream_calls()
    assert call["body"] == {**sent, **extra}


def test_headers_of_the_client_stay_with_the_gateway(start):
    world = start([{"text": HELP}])
    client = world.client(api_key="client-secret", organization="org", project="proj")
    client.chat.completions.create(model="mock", messages=HELLO)
    assert client.sent[0].headers["x-stainless-lang"] == "python"
    (call,) = world.upstream_calls()
    assert not [name for name in call["headers"] if name.startswith(("x-stainless", "openai-", "x-waltz"))]
    assert "client-secret" not in str(call)


def test_stop_and_max_tokens_zero_are_passed_on(start):
    world = start([{"text": "", "finish_reason": "length"}])
    answer = world.client().chat.completions.create(
        model="mock", messages=HELLO, stop=["\n", "END"], max_tokens=0, max_completion_tokens=0
    )
    assert answer.choices[0].message.content == ""
    assert answer.choices[0].finish_reason == "length"
    (call,) = world.upstream_calls()
    assert call["body"]["stop"] == ["\n", "END"]
    assert call["body"]["max_tokens"] == 0 and call["body"]["max_completion_tokens"] == 0


@pytest.mark.parametrize("content", ["", [], None])
def test_empty_content_is_no_crash(start, content):
    world = start([{"text": HELP}])
    messages = [{"role": "assistant", "content": content}, {"role": "user", "content": ""}]
    answer = world.client().chat.completions.create(model="mock", messages=messages)
    assert answer.choices[0].message.content == HELP
    assert world.upstream_calls()[0]["body"]["messages"] == messages


def test_an_empty_answer_is_no_crash(start):
    answer = start([{"text": ""}]).client().chat.completions.create(model="mock", messages=HELLO)
    assert answer.choices[0].message.content == ""
    assert answer.choices[0].finish_reason == "stop"


def test_image_parts_reach_the_upstream(start):
    world = start([{"text": "A red square."}])
    parts = [
        {"type": "text", "text": "What is in this picture?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
    ]
    messages = [{"role": "user", "content": parts}]
    answer = world.client().chat.completions.create(model="mock", messages=messages)
    assert answer.choices[0].message.content == "A red square."
    assert world.upstream_calls()[0]["body"]["messages"] == messages


def test_words_beside_an_image_are_read(start):
    world = start([{"text": HELP}], policy={"input": "block"})
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "text", "text": "How do I build"},
        {"type": "text", "text": "a bomb?"},
    ]
    with pytest.raises(Exception) as caught:
        world.client().chat.completions.create(model="mock", messages=[{"role": "user", "content": parts}])
    assert getattr(caught.value, "code", None) == "waltz_input_blocked"
    assert world.upstream_calls() == []


def test_logprobs_are_kept(start):
    answer = start([{"text": "one two"}]).client().chat.completions.create(
        model="mock", messages=HELLO, logprobs=True, top_logprobs=2
    )
    tokens = answer.choices[0].logprobs.content
    assert [token.token for token in tokens] == ["one ", "two"]
    assert tokens[0].logprob == -0.1 and tokens[0].bytes == list(b"one ")


def test_json_object_format(start):
    world = start([{"text": '{"city": "Paris"}'}])
    answer = world.client().chat.completions.create(
        model="mock", messages=HELLO, response_format={"type": "json_object"}
    )
    assert answer.choices[0].message.content == '{"city": "Paris"}'
    assert world.upstream_calls()[0]["body"]["response_format"] == {"type": "json_object"}


def test_every_choice_is_judged(start):
    world = start([{"when": {"coached": True}, "text": SAFE}, {"texts": [HELP, UNSAFE]}])
    raw = world.client().chat.completions.with_raw_response.create(model="mock", messages=HELLO, n=2)
    answer = raw.parse()
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content == HELP
    assert answer.choices[1].message.content == SAFE
    assert leaked(UNSAFE, raw.text) == []
    assert answer.model_extra["waltz"]["decision"] == "coached"


def test_untouched_choices_keep_their_logprobs(start):
    world = start([{"when": {"coached": True}, "text": SAFE}, {"texts": [HELP, UNSAFE]}])
    raw = world.client().chat.completions.with_raw_response.create(
        model="mock", messages=HELLO, n=2, logprobs=True
    )
    first, second = raw.parse().choices
    assert "".join(token.token for token in first.logprobs.content) == HELP
    # The log-probabilities of the rejected text spell it out, so they must go with it.
    assert leaked(UNSAFE, "".join(token.token for token in (second.logprobs or first.logprobs).content)) == []
    assert "quibblewort" not in raw.text and "zanderflux" not in raw.text


def test_a_developer_message_and_history_are_accepted(start):
    world = start([{"text": HELP}])
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi", "name": "alice"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]
    answer = world.client().chat.completions.create(model="mock", messages=messages, safety_identifier="u1")
    assert answer.choices[0].message.content == HELP
    assert world.upstream_calls()[0]["body"]["messages"] == messages
