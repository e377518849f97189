"""Blocked prompts and the `moderation` parameter: one request, no upstream call, typed results."""

import openai
import pytest
from openai.types.chat.chat_completion import (
    ModerationInputModerationResults,
    ModerationOutputModerationResults,
)

from world import HARMFUL_PROMPT, HELP, SAFE, UNSAFE, UNSAFE_THEN_SAFE, leaked

HELLO = [{"role": "user", "content": "Hello there"}]
HARMFUL = [{"role": "user", "content": HARMFUL_PROMPT}]
CATEGORIES = {
    "violence_harm",
    "illegal_activity",
    "unauthorized_access",
    "privacy_violation",
    "hate_speech",
    "self_harm",
    "sexual_content",
    "misinformation",
}


def moderation(**modes):
    policy = {side: {"mode": mode} for side, mode in modes.items()}
    return {"model": "omni-moderation-latest", "policy": policy}


def create(client, **options):
    return client.chat.completions.create(model="mock", messages=HARMFUL, **options)


def by_extra_body(client):
    create(client, extra_body={"moderation": moderation(input="block")})


def by_parameter(client):
    create(client, moderation=moderation(input="block"))


def by_parameter_streamed(client):
    list(create(client, moderation=moderation(input="block"), stream=True))


def by_stream_helper(client):
    with client.chat.completions.stream(
        model="mock", messages=HARMFUL, moderation=moderation(input="block")
    ) as stream:
        stream.get_final_completion()


def by_policy(client):
    create(client)


def by_policy_streamed(client):
    list(create(client, stream=True))


ASKED = [by_extra_body, by_parameter, by_parameter_streamed, by_stream_helper]
POLICY = [by_policy, by_policy_streamed]


@pytest.mark.parametrize("ask", ASKED + POLICY)
def test_a_blocked_prompt_is_one_request_and_no_upstream_call(start, ask):
    world = start([{"text": HELP}], policy={"input": "block" if ask in POLICY else "coach"})
    client = world.client()
    assert client.max_retries == 2, "the SDK must be free to retry"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client)
    assert len(client.sent) == 1, "a blocked prompt must not be retried"
    assert world.upstream_calls() == []
    error = caught.value
    assert error.status_code == 400
    assert error.code == "waltz_input_blocked"
    assert error.type == "invalid_request_error" and error.param == "messages"
    assert set(error.body) == {"message", "type", "param", "code"}
    assert error.request_id.startswith("req_")
    assert error.response.headers["x-should-retry"] == "false"
    assert error.response.headers["x-waltz-decision"] == "blocked"


def test_the_request_counter_sees_retries(start):
    """The test above means nothing if retries could not be counted."""
    world = start([{"status": 429, "headers": {"retry-after-ms": "5"}}])
    client = world.client()
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="mock", messages=HELLO)
    assert len(client.sent) == 3
    assert len(world.upstream_calls()) == 3


def test_a_harmless_prompt_is_not_blocked(start):
    world = start([{"text": HELP}], policy={"input": "block"})
    answer = world.client().chat.completions.create(
        model="mock", messages=HELLO, moderation=moderation(input="block", output="block")
    )
    assert answer.choices[0].message.content == HELP
    assert answer.choices[0].finish_reason == "stop"


def test_score_mode_reports_and_lets_through(start):
    world = start([{"text": SAFE}])
    answer = world.client().chat.completions.create(
        model="mock", messages=HARMFUL, extra_body={"moderation": moderation(input="score", output="score")}
    )
    asked, given = answer.moderation.input, answer.moderation.output
    assert isinstance(asked, ModerationInputModerationResults)
    assert isinstance(given, ModerationOutputModerationResults)
    (result,) = asked.results
    assert result.type == "moderation_result" and result.flagged is True
    assert set(result.categories) == set(result.category_scores) == CATEGORIES
    assert result.categories["violence_harm"] is True and result.category_scores["violence_harm"] >= 0.5
    assert result.category_applied_input_types["violence_harm"] == ["text"]
    assert len(world.upstream_calls()) >= 1, "scoring blocks nothing"


def test_score_is_the_default_mode(start):
    answer = start([{"text": HELP}]).client().chat.completions.create(
        model="mock", messages=HELLO, moderation={"model": "omni-moderation-latest"}
    )
    assert answer.moderation.input.results[0].flagged is False
    assert answer.moderation.output.results[0].flagged is False
    assert set(answer.moderation.output.results[0].category_scores.values()) == {0.0}


def test_the_moderation_parameter_is_ours_alone(start):
    world = start([{"text": HELP}])
    world.client().chat.completions.create(model="mock", messages=HELLO, moderation=moderation(input="score"))
    assert world.upstream_calls()[0]["body"] == {"model": "mock", "messages": HELLO}


def test_without_the_parameter_there_is_no_moderation_field(start):
    answer = start([{"text": HELP}]).client().chat.completions.create(model="mock", messages=HELLO)
    assert answer.moderation is None


def test_a_wrong_mode_is_a_bad_request(start):
    world = start([{"text": HELP}])
    with pytest.raises(openai.BadRequestError) as caught:
        world.client().chat.completions.create(
            model="mock", messages=HELLO, extra_body={"moderation": {"policy": {"input": {"mode": "maybe"}}}}
        )
    assert caught.value.param == "moderation.policy.input.mode"
    assert world.upstream_calls() == []


@pytest.mark.parametrize("stream", [False, True])
def test_blocked_output_is_replaced_without_coaching(start, stream):
    world = start(UNSAFE_THEN_SAFE)
    client = world.client()
    options = {"model": "mock", "messages": HELLO, "moderation": moderation(output="block")}
    if stream:
        chunks = list(client.chat.completions.create(**options, stream=True))
        choices = [choice for chunk in chunks for choice in chunk.choices]
        text = "".join(choice.delta.content or "" for choice in choices)
        reason = choices[-1].finish_reason
    else:
        (choice,) = client.chat.completions.create(**options).choices
        text, reason = choice.message.content, choice.finish_reason
    assert reason == "content_filter"
    assert text and leaked(UNSAFE, text) == [] and text != SAFE
    assert len(world.upstream_calls()) == 1


def test_blocked_output_says_why(start):
    answer = start([{"text": UNSAFE}]).client().chat.completions.create(
        model="mock", messages=HELLO, moderation=moderation(output="block")
    )
    (result,) = answer.moderation.output.results
    assert answer.choices[0].finish_reason == "content_filter"
    assert result.flagged is True and result.categories["violence_harm"] is True


def test_annotations_off_leaves_the_moderation_chunk_alone(start):
    client = start([{"text": HELP}]).client(default_headers={"x-waltz-annotations": "off"})
    stream = client.chat.completions.create(
        model="mock", messages=HELLO, stream=True, moderation=moderation(input="score")
    )
    (told,) = [chunk for chunk in stream if chunk.moderation]
    assert "waltz" not in (told.model_extra or {})


def test_the_moderation_chunk_of_a_stream_is_typed(start):
    client = start([{"text": SAFE}]).client()
    stream = client.chat.completions.create(
        model="mock", messages=HARMFUL, stream=True, moderation=moderation(input="score")
    )
    told = [chunk.moderation for chunk in stream if chunk.moderation]
    assert len(told) == 1
    assert told[0].input.results[0].flagged is True
