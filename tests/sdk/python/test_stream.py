"""Streams: chunk by chunk, through the `.stream()` helper, and byte by byte (F-24)."""

import json

import openai
import pytest

from world import HARMFUL_PROMPT, HELP, SAFE, UNSAFE, UNSAFE_THEN_SAFE, leaked

HELLO = [{"role": "user", "content": "Hello there"}]
HARMFUL = [{"role": "user", "content": HARMFUL_PROMPT}]
MODERATION = {"model": "omni-moderation-latest"}


def text_of(chunks, index=0):
    return "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index
    )


def raw_stream(world, **body):
    """The bytes of a stream as they came."""
    request = {"model": "mock", "messages": HELLO, "stream": True, **body}
    response = world.http().post("/v1/chat/completions", json=request)
    assert response.status_code == 200
    return response


def test_chunks_are_one_well_formed_answer(start):
    client = start([{"text": HELP, "chunk_letters": 5}]).client()
    chunks = list(client.chat.completions.create(model="mock", messages=HELLO, stream=True))
    assert text_of(chunks) == HELP
    assert len(chunks) > 10
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[:-1] == [None] * (len(chunks) - 1) and reasons[-1] == "stop"
    # Clients read `choices[0]` without looking, so that no chunk may come without a choice unasked.
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)


def test_headers_of_a_stream(start):
    client = start([{"text": HELP}]).client()
    raw = client.chat.completions.with_raw_response.create(model="mock", messages=HELLO, stream=True)
    assert raw.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert raw.headers["cache-control"] == "no-cache"
    assert raw.headers["x-waltz-decision"] == "pending"
    assert raw.headers["x-request-id"].startswith("req_")
    assert text_of(raw.parse()) == HELP


def test_the_stream_ends_with_done_and_a_blank_line(start):
    body = raw_stream(start([{"text": HELP}])).text
    assert body.endswith("\n\ndata: [DONE]\n\n")
    assert body.count("[DONE]") == 1


def test_stream_helper_accumulates_the_answer(start):
    client = start([{"text": HELP, "chunk_letters": 3}]).client()
    with client.chat.completions.stream(model="mock", messages=HELLO) as stream:
        seen = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert seen == final.choices[0].message.content == HELP
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.role == "assistant"


def test_include_usage_adds_one_chunk_at_the_end(start):
    client = start([{"text": HELP}]).client()
    chunks = list(
        client.chat.completions.create(
            model="mock", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert text_of(chunks) == HELP
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(HELP.split())


def test_include_usage_after_coaching_counts_every_round(start):
    world = start(UNSAFE_THEN_SAFE)
    chunks = list(
        world.client().chat.completions.create(
            model="mock", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert text_of(chunks) == SAFE
    assert chunks[-1].usage.completion_tokens == len(UNSAFE.split()) + len(SAFE.split())


def test_metadata_chunk_on_request_comes_before_the_end(start):
    client = start([{"text": HELP}]).client()
    stream = client.chat.completions.create(
        model="mock", messages=HELLO, stream=True, extra_headers={"x-waltz-annotations": "on"}
    )
    chunks = list(stream)
    told = [chunk for chunk in chunks if chunk.choices == []]
    assert len(told) == 1
    assert told[0].model_extra["waltz"]["decision"] == "released"
    assert (told[0].id, told[0].created) == (chunks[0].id, chunks[0].created)


def test_stream_helper_keeps_moderation_and_usage(start):
    """The helper takes `usage` from the last chunk, so that the usage chunk must be the last one."""
    client = start([{"text": HELP}]).client()
    with client.chat.completions.stream(
        model="mock", messages=HELLO, moderation=MODERATION, stream_options={"include_usage": True}
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == HELP
    assert final.moderation.output.results[0].flagged is False
    assert final.usage is not None, "the metadata chunk after the usage chunk wiped the usage"
    assert final.usage.completion_tokens == len(HELP.split())


def test_several_choices_stream_apart(start):
    client = start([{"texts": [HELP, SAFE], "chunk_letters": 7}]).client()
    with client.chat.completions.stream(model="mock", messages=HELLO, n=2) as stream:
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == [HELP, SAFE]
    assert [choice.finish_reason for choice in final.choices] == ["stop", "stop"]


def test_only_the_safe_text_is_visible(start):
    world = start(UNSAFE_THEN_SAFE)
    chunks = list(world.client().chat.completions.create(model="mock", messages=HARMFUL, stream=True))
    assert text_of(chunks) == SAFE
    assert chunks[-1].choices[0].finish_reason == "stop"
    with world.client().chat.completions.stream(model="mock", messages=HARMFUL) as stream:
        assert stream.get_final_completion().choices[0].message.content == SAFE


@pytest.mark.parametrize("letters", [1, 12, 1000])
def test_no_byte_of_the_unsafe_text_leaves(start, letters):
    replies = [UNSAFE_THEN_SAFE[0], {"text": UNSAFE, "chunk_letters": letters}]
    response = raw_stream(start(replies), stream_options={"include_usage": True}, moderation=MODERATION)
    assert leaked(UNSAFE, response.text) == []
    assert leaked(UNSAFE, str(response.headers)) == []
    events = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
    chunks = [json.loads(event) for event in events]
    texts = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    assert "".join(texts) == SAFE


def test_an_unsafe_choice_among_several_never_shows(start):
    world = start([{"when": {"coached": True}, "text": SAFE}, {"texts": [HELP, UNSAFE]}])
    response = raw_stream(world, n=2)
    assert leaked(UNSAFE, response.text) == []
    chunks = list(world.client().chat.completions.create(model="mock", messages=HELLO, stream=True, n=2))
    assert (text_of(chunks, 0), text_of(chunks, 1)) == (HELP, SAFE)


def logprob_frames(*texts):
    """A stream with log-probabilities, which the mock does not make by itself."""
    head = {"id": "chatcmpl-raw", "object": "chat.completion.chunk", "created": 1, "model": "mock"}
    frames = []
    for index, text in enumerate(texts):
        for word in text.split(" "):
            token = {"token": word, "logprob": -0.5, "bytes": list(word.encode()), "top_logprobs": []}
            choice = {
                "index": index,
                "delta": {"content": word + " "},
                "logprobs": {"content": [token], "refusal": None},
                "finish_reason": None,
            }
            frames.append({**head, "choices": [choice]})
        end = {"index": index, "delta": {}, "logprobs": None, "finish_reason": "stop"}
        frames.append({**head, "choices": [end]})
    body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
    return {"raw": body, "headers": {"content-type": "text/event-stream"}}


def streamed_tokens(world, **options):
    with world.client().chat.completions.stream(
        model="mock", messages=HELLO, logprobs=True, **options
    ) as stream:
        final = stream.get_final_completion()
    return [[token.token for token in choice.logprobs.content] for choice in final.choices if choice.logprobs]


def test_logprobs_of_a_stream_are_kept(start):
    assert streamed_tokens(start([logprob_frames("one two three")])) == [["one", "two", "three"]]


def test_logprobs_of_an_untouched_choice_survive_coaching_of_another(start):
    world = start([{"when": {"coached": True}, "text": SAFE}, logprob_frames("one two", UNSAFE)])
    tokens = streamed_tokens(world, n=2)
    assert tokens and tokens[0] == ["one", "two"]
    assert "quibblewort" not in str(tokens)


def test_a_json_answer_to_a_stream_request_is_streamed(start):
    """Some upstreams ignore `stream`."""
    answer = {
        "id": "chatcmpl-json",
        "object": "chat.completion",
        "created": 5,
        "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": HELP}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    world = start([{"raw": json.dumps(answer), "headers": {"content-type": "application/json"}}])
    with world.client().chat.completions.stream(
        model="mock", messages=HELLO, stream_options={"include_usage": True}
    ) as stream:
        final = stream.get_final_completion()
    assert final.id == "chatcmpl-json"
    assert final.choices[0].message.content == HELP
    assert final.usage.total_tokens == 3


def test_an_upstream_that_breaks_off_raises_in_the_stream(start):
    # The pause lets the head of the stream leave before the cut.
    world = start([{"text": UNSAFE, "cut_after": 4, "chunk_letters": 8, "chunk_delay_ms": 20}])
    stream = world.client(max_retries=0).chat.completions.create(model="mock", messages=HELLO, stream=True)
    chunks = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in stream:
            chunks.append(chunk)
    assert caught.value.code == "upstream_unavailable"
    assert text_of(chunks) == "", "what was not judged must not be shown"


def test_an_upstream_error_before_the_stream_is_a_status(start):
    client = start([{"status": 500}], retry={"max_retries": 0}).client(max_retries=0)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="mock", messages=HELLO, stream=True)


def test_a_client_that_leaves_early_does_no_harm(start):
    world = start([{"text": HELP, "chunk_letters": 1, "chunk_delay_ms": 20, "times": 1}, {"text": HELP}])
    client = world.client()
    with client.chat.completions.create(model="mock", messages=HELLO, stream=True) as stream:
        stream.response.close()
    again = client.chat.completions.create(model="mock", messages=HELLO)
    assert again.choices[0].message.content == HELP
