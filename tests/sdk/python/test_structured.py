"""`.parse()` with a pydantic model. A block comes as `message.refusal`, never as an exception (F-24)."""

import json

import pytest
from openai import pydantic_function_tool
from pydantic import BaseModel

from world import HARMFUL_PROMPT, REFUSAL, SAFE, UNSAFE, leaked

QUESTION = [{"role": "user", "content": "Where is the Louvre?"}]
MODERATION = {"model": "omni-moderation-latest", "policy": {"output": {"mode": "block"}}}


class Place(BaseModel):
    name: str
    city: str


GOOD = json.dumps({"name": "Louvre", "city": "Paris"})
BAD = json.dumps({"name": UNSAFE, "city": "Paris"})
UNSAFE_THEN_GOOD = [{"when": {"coached": True}, "text": GOOD}, {"text": BAD}]


def parse(world, **options):
    return world.client().chat.completions.parse(
        model="mock", messages=QUESTION, response_format=Place, **options
    )


def stream(world, **options):
    helper = world.client().chat.completions.stream(
        model="mock", messages=QUESTION, response_format=Place, **options
    )
    with helper as events:
        return events.get_final_completion()


def assert_refused(choice):
    assert choice.finish_reason == "stop"
    assert choice.message.refusal and leaked(UNSAFE, choice.message.refusal) == []
    assert not choice.message.content
    assert choice.message.parsed is None


@pytest.mark.parametrize("ask", [parse, stream])
def test_a_good_answer_is_parsed(start, ask):
    world = start([{"text": GOOD}])
    (choice,) = ask(world).choices
    assert choice.message.parsed == Place(name="Louvre", city="Paris")
    assert choice.message.refusal is None
    schema = world.upstream_calls()[0]["body"]["response_format"]
    assert schema["type"] == "json_schema" and schema["json_schema"]["strict"] is True


@pytest.mark.parametrize("ask", [parse, stream])
def test_an_unsafe_answer_is_coached_into_the_same_form(start, ask):
    (choice,) = ask(start(UNSAFE_THEN_GOOD)).choices
    assert choice.message.parsed == Place(name="Louvre", city="Paris")
    assert choice.message.refusal is None


@pytest.mark.parametrize("ask", [parse, stream])
def test_an_answer_that_stays_unsafe_is_a_refusal(start, ask):
    answer = ask(start([{"text": BAD}]))
    assert_refused(answer.choices[0])
    assert leaked(UNSAFE, answer.model_dump_json()) == []


@pytest.mark.parametrize("ask", [parse, stream])
def test_a_blocked_answer_is_a_refusal(start, ask):
    world = start([{"text": BAD}])
    assert_refused(ask(world, extra_body={"moderation": MODERATION}).choices[0])
    assert len(world.upstream_calls()) == 1, "a block asks nobody for a revision"


@pytest.mark.parametrize("ask", [parse, stream])
def test_a_revision_in_prose_is_a_refusal(start, ask):
    """Prose in `content` makes `.parse()` raise a ValidationError."""
    (choice,) = ask(start([{"when": {"coached": True}, "text": SAFE}, {"text": BAD}])).choices
    assert_refused(choice)


def test_a_refusal_of_the_model_itself_is_kept(start):
    message = {"role": "assistant", "content": None, "refusal": REFUSAL}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "mock", "choices": [choice]}
    world = start([{"raw": json.dumps(body), "headers": {"content-type": "application/json"}}])
    answer = world.client().chat.completions.parse(
        model="mock", messages=[{"role": "user", "content": HARMFUL_PROMPT}], response_format=Place
    )
    assert answer.choices[0].message.refusal == REFUSAL
    assert answer.choices[0].message.parsed is None
    assert len(world.upstream_calls()) == 1


class FindPlace(BaseModel):
    """Finds a place."""

    query: str


def test_strict_tools_are_parsed(start):
    world = start([{"tool_calls": [{"name": "FindPlace", "arguments": '{"query": "Louvre"}'}]}])
    answer = world.client().chat.completions.parse(
        model="mock", messages=QUESTION, tools=[pydantic_function_tool(FindPlace)]
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.parsed_arguments == FindPlace(query="Louvre")


def test_an_unsafe_strict_tool_call_is_a_refusal(start):
    world = start([{"tool_calls": [{"name": "FindPlace", "arguments": json.dumps({"query": UNSAFE})}]}])
    answer = world.client().chat.completions.parse(
        model="mock", messages=QUESTION, tools=[pydantic_function_tool(FindPlace)]
    )
    assert_refused(answer.choices[0])
    assert not answer.choices[0].message.tool_calls
