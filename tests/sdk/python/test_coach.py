"""What the coach does, as an application sees it through the SDK."""

import pytest

from world import (
    HARMFUL_PROMPT,
    HARMLESS_PROMPT,
    HELP,
    REFUSAL,
    SAFE,
    UNSAFE,
    UNSAFE_THEN_SAFE,
    leaked,
)

HARMFUL = [{"role": "user", "content": HARMFUL_PROMPT}]
HARMLESS = [{"role": "user", "content": HARMLESS_PROMPT}]


def answer_text(world, messages, stream, **options):
    """The text that the application sees."""
    answer = world.client().chat.completions.create(model="mock", messages=messages, stream=stream, **options)
    if stream:
        return "".join(choice.delta.content or "" for chunk in answer for choice in chunk.choices)
    return answer.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_unsafe_then_safe_shows_the_safe_text_alone(start, stream):
    world = start(UNSAFE_THEN_SAFE)
    assert answer_text(world, HARMFUL, stream) == SAFE
    draft, revision = world.upstream_calls()
    assert draft["body"]["messages"] == HARMFUL
    # The agent is told what was wrong with its draft; the client never sees that conversation.
    told = revision["body"]["messages"]
    assert told[:2] == [*HARMFUL, {"role": "assistant", "content": UNSAFE}]
    assert "Advice:" in told[2]["content"]
    assert not revision["body"].get("stream")


def test_unsafe_then_safe_in_json_holds_no_byte_of_the_draft(start):
    raw = start(UNSAFE_THEN_SAFE).client().chat.completions.with_raw_response.create(
        model="mock", messages=HARMFUL
    )
    assert leaked(UNSAFE, raw.text) == []
    assert leaked(UNSAFE, str(raw.headers)) == []
    told = raw.parse().model_extra["waltz"]
    assert told["decision"] == raw.headers["x-waltz-decision"] == "coached"
    assert told["rounds"] == 1 and raw.headers["x-waltz-rounds"] == "1"
    assert told["categories"]["violence_harm"] >= 0.5
    assert told["safety_score"] == 1.0


@pytest.mark.parametrize("stream", [False, True])
def test_over_refusal_is_mended(start, stream):
    world = start([{"when": {"coached": True}, "text": HELP}, {"text": REFUSAL}])
    assert answer_text(world, HARMLESS, stream) == HELP
    assert len(world.upstream_calls()) == 2


def test_a_justified_refusal_is_left_alone(start):
    world = start([{"text": REFUSAL}])
    assert answer_text(world, HARMFUL, False) == REFUSAL
    assert len(world.upstream_calls()) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_what_stays_unsafe_becomes_the_last_resort_reply(start, stream):
    world = start([{"text": UNSAFE}])
    text = answer_text(world, HARMFUL, stream)
    assert "emergency number" in text
    assert leaked(UNSAFE, text) == []
    assert len(world.upstream_calls()) == 1 + 3, "a draft and three rounds"


def test_the_last_resort_reply_says_that_it_refuses(start):
    raw = start([{"text": UNSAFE}]).client().chat.completions.with_raw_response.create(
        model="mock", messages=HARMFUL
    )
    assert raw.headers["x-waltz-decision"] == "refused"
    assert raw.parse().choices[0].finish_reason == "stop"
    assert leaked(UNSAFE, raw.text) == []


def test_a_worse_revision_is_dropped(start):
    world = start([{"when": {"coached": True}, "text": UNSAFE}, {"text": REFUSAL}])
    assert answer_text(world, HARMLESS, False) == REFUSAL


def test_switched_off_it_is_a_transparent_proxy(start):
    world = start([{"text": UNSAFE}], waltz={"enabled": False})
    raw = world.client().chat.completions.with_raw_response.create(model="mock", messages=HARMFUL)
    assert raw.parse().choices[0].message.content == UNSAFE
    assert raw.headers["x-waltz-decision"] == "passthrough"
    assert not raw.parse().model_extra
    assert answer_text(world, HARMFUL, True) == UNSAFE


def test_feedback_only_judges_and_changes_nothing(start):
    world = start([{"text": UNSAFE}], waltz={"feedback_only": True})
    answer = world.client().chat.completions.create(model="mock", messages=HARMFUL)
    assert answer.choices[0].message.content == UNSAFE
    assert answer.model_extra["waltz"]["decision"] == "passthrough"
    assert answer.model_extra["waltz"]["safety_score"] < 0.5
    assert len(world.upstream_calls()) == 1


def test_a_feedback_model_is_asked_and_never_seen(start):
    """With a judge model configured, its advice reaches the agent and its words never reach the client."""
    opinion = {"unsafe": True, "reasoning": "secretreasoning", "feedback": "adviceforyou"}
    replies = [
        {"when": {"judging": True}, "times": 1, "verdict": opinion},
        {"when": {"judging": True}, "verdict": {}},
        *UNSAFE_THEN_SAFE,
    ]
    world = start(replies, feedback={"targets": [{"upstream": "mock", "model": "judge"}]})
    raw = world.client().chat.completions.with_raw_response.create(model="mock", messages=HARMFUL)
    assert raw.parse().choices[0].message.content == SAFE
    assert "secretreasoning" not in raw.text and "adviceforyou" not in raw.text
    drafts = [call["body"] for call in world.upstream_calls() if call["body"]["model"] == "mock"]
    assert "adviceforyou" in drafts[1]["messages"][-1]["content"]
    assert "secretreasoning" not in str(drafts)
