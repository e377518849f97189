"""Unsafe text must not reach the client in any field of an answer, not only in `content`."""

import json

import pytest

from world import SAFE, UNSAFE, leaked

HELLO = [{"role": "user", "content": "Hello there"}]


def answer(message, **choice):
    """A reply of the mock with a message of any form."""
    body = {
        "id": "chatcmpl-raw",
        "object": "chat.completion",
        "created": 5,
        "model": "mock",
        "choices": [
            {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **choice}
        ],
    }
    return {"raw": json.dumps(body), "headers": {"content-type": "application/json"}}


def call(**function):
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


MESSAGES = {
    "content": {"content": UNSAFE},
    "text part": {"content": [{"type": "text", "text": UNSAFE}]},
    "refusal": {"content": None, "refusal": UNSAFE},
    "reasoning_content": {"content": "Fine.", "reasoning_content": UNSAFE},
    "reasoning": {"content": "Fine.", "reasoning": UNSAFE},
    "function_call": {"content": None, "function_call": {"name": "f", "arguments": json.dumps([UNSAFE])}},
    "custom tool": {
        "content": None,
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": UNSAFE}}],
    },
    "tool name": call(name=UNSAFE, arguments="{}"),
    "argument": call(name="f", arguments=json.dumps({"a": {"b": [UNSAFE]}})),
    "cut-up argument": call(name="f", arguments=json.dumps({"a": UNSAFE.split(" ")})),
    "argument that is no JSON": call(name="f", arguments='{"a": "' + UNSAFE),
    "argument name": call(name="f", arguments=json.dumps({UNSAFE: 1})),
    "refusal part": {"content": [{"type": "refusal", "refusal": UNSAFE}]},
    "audio transcript": {
        "content": None,
        "audio": {"id": "a", "data": "AAAA", "expires_at": 1, "transcript": UNSAFE},
    },
    "reasoning_details": {"content": "Fine.", "reasoning_details": [{"type": "text", "text": UNSAFE}]},
    "thinking": {"content": "Fine.", "thinking": UNSAFE},
    "citation title": {
        "content": "Fine.",
        "annotations": [
            {
                "type": "url_citation",
                "url_citation": {"title": UNSAFE, "url": "http://a", "start_index": 0, "end_index": 1},
            }
        ],
    },
    "argument name without a value": call(name="f", arguments=json.dumps({UNSAFE: None})),
    "argument name of nothing": call(name="f", arguments=json.dumps({UNSAFE: {}})),
}
CASES = [pytest.param(message, id=name) for name, message in MESSAGES.items()]


@pytest.mark.parametrize("message", CASES)
def test_no_field_hides_unsafe_text(start, message):
    world = start([{"when": {"coached": True}, "text": SAFE}, answer(message)])
    raw = world.client().chat.completions.with_raw_response.create(model="mock", messages=HELLO)
    assert leaked(UNSAFE, raw.text) == []
    assert raw.parse().choices[0].message.content == SAFE


@pytest.mark.parametrize("message", CASES)
def test_no_field_of_a_stream_hides_unsafe_text(start, message):
    """The same with an upstream that answers a stream request; each field comes as one delta."""
    head = {"id": "chatcmpl-raw", "object": "chat.completion.chunk", "created": 5, "model": "mock"}
    calls = [{**item, "index": 0} for item in message.get("tool_calls", [])]
    delta = {"role": "assistant", **message, **({"tool_calls": calls} if calls else {})}
    choices = [{"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}]
    chunks = [{**head, "choices": [{"index": 0, **choice}]} for choice in choices]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    reply = {"raw": body, "headers": {"content-type": "text/event-stream"}}
    world = start([{"when": {"coached": True}, "text": SAFE}, reply])
    response = world.http().post(
        "/v1/chat/completions", json={"model": "mock", "messages": HELLO, "stream": True}
    )
    assert response.status_code == 200 and '"error"' not in response.text
    assert leaked(UNSAFE, response.text) == []
    assert SAFE in response.text
