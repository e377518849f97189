"""Tools: calls in one piece and in fragments, judged as a whole (F-25)."""

import json

import pytest

from world import SAFE, UNSAFE, leaked

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
QUESTION = [{"role": "user", "content": "How is the weather in Paris and Rome?"}]
ARGUMENTS = ['{"city": "Paris", "note": "grüße, 東京 \\"quoted\\""}', '{"city": "Rome"}']
CALLS = [{"name": "weather", "arguments": text} for text in ARGUMENTS]
BAD_CALL = [{"name": "weather", "arguments": json.dumps({"city": UNSAFE})}]
ASK = {"model": "mock", "messages": QUESTION, "tools": TOOLS}


def test_a_tool_only_turn_has_null_content(start):
    world = start([{"tool_calls": CALLS}])
    (choice,) = world.client().chat.completions.create(**ASK).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert [call.function.arguments for call in choice.message.tool_calls] == ARGUMENTS
    assert [call.type for call in choice.message.tool_calls] == ["function", "function"]
    assert world.upstream_calls()[0]["body"]["tools"] == TOOLS


def test_streamed_fragments_assemble(start):
    client = start([{"tool_calls": CALLS, "chunk_letters": 4}]).client()
    calls = {}
    chunks = list(client.chat.completions.create(**ASK, stream=True))
    for chunk in chunks:
        for part in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(part.index, {"id": None, "name": None, "arguments": ""})
            call["id"] = part.id or call["id"]
            call["name"] = part.function.name or call["name"]
            call["arguments"] += part.function.arguments or ""
    assert [calls[index]["arguments"] for index in (0, 1)] == ARGUMENTS
    assert [calls[index]["name"] for index in (0, 1)] == ["weather", "weather"]
    assert calls[0]["id"] and calls[0]["id"] != calls[1]["id"]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_stream_helper_assembles_tool_calls(start):
    client = start([{"tool_calls": CALLS, "chunk_letters": 4}]).client()
    with client.chat.completions.stream(**ASK) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        (choice,) = stream.get_final_completion().choices
    assert [event.arguments for event in done] == ARGUMENTS
    assert [call.function.arguments for call in choice.message.tool_calls] == ARGUMENTS
    assert choice.finish_reason == "tool_calls"


def test_a_whole_tool_turn(start):
    """The client answers a call with the tool's result and gets the text."""
    world = start([{"times": 1, "tool_calls": CALLS[1:]}, {"text": "Sunny."}])
    client = world.client()
    first = client.chat.completions.create(**ASK).choices[0].message
    (call,) = first.tool_calls
    messages = [*QUESTION, first, {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "clear"}'}]
    second = client.chat.completions.create(**{**ASK, "messages": messages})
    assert second.choices[0].message.content == "Sunny."
    assert world.upstream_calls()[1]["body"]["messages"][2]["content"] == '{"sky": "clear"}'


@pytest.mark.parametrize("letters", [3, 1000])
@pytest.mark.parametrize("stream", [False, True])
def test_unsafe_arguments_never_reach_the_client(start, stream, letters):
    """No single fragment looks unsafe; the assembled arguments do."""
    bad = {"tool_calls": BAD_CALL, "chunk_letters": letters}
    world = start([{"when": {"coached": True}, "text": SAFE}, bad])
    response = world.http().post("/v1/chat/completions", json={**ASK, "stream": stream})
    assert response.status_code == 200
    assert leaked(UNSAFE, response.text) == []
    assert "tool_calls" not in response.text
    options = {**ASK, "stream": True} if stream else ASK
    answer = world.client().chat.completions.create(**options)
    if stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in answer) == SAFE
    else:
        assert answer.choices[0].message.content == SAFE
        assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_may_be_coached_into_a_better_one(start, stream):
    world = start([{"when": {"coached": True}, "tool_calls": CALLS[1:]}, {"tool_calls": BAD_CALL}])
    client = world.client()
    if stream:
        with client.chat.completions.stream(**ASK) as helper:
            (choice,) = helper.get_final_completion().choices
    else:
        (choice,) = client.chat.completions.create(**ASK).choices
    assert choice.finish_reason == "tool_calls"
    assert [call.function.arguments for call in choice.message.tool_calls] == ARGUMENTS[1:]
    assert not choice.message.content
