"""`POST /waltz/v1/evaluate`: answers that were made elsewhere."""

import pytest

from world import HARMFUL_PROMPT, HARMLESS_PROMPT, HELP, REFUSAL, SAFE, UNSAFE, leaked


def evaluate(world, **body):
    response = world.http().post("/waltz/v1/evaluate", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_verdict_without_a_revision(start):
    told = evaluate(start(), prompt=HARMFUL_PROMPT, response=UNSAFE)
    assert told["verdict"]["unsafe"] is True and told["safety_score"] < 0.5
    assert told["verdict"]["issues"][0]["category"] == "violence_harm"
    assert told["advice"] == told["verdict"]["feedback"] != ""
    assert told["revision"] is None


def test_a_good_answer_needs_no_revision(start):
    told = evaluate(start(), prompt=HARMLESS_PROMPT, response=HELP, revise=True)
    assert told["verdict"]["unsafe"] is told["verdict"]["overrefuse"] is False
    assert told["safety_score"] == 1.0 and told["advice"] == ""
    assert told["revision"] is None


def test_rules_revise_where_no_model_is_named(start):
    world = start()
    told = evaluate(world, prompt=HARMFUL_PROMPT, response=UNSAFE, revise=True)
    revision = told["revision"]
    assert revision["changed"] is True and leaked(UNSAFE, revision["text"]) == []
    assert revision["verdict"]["unsafe"] is False and revision["dir_score"] > 0
    assert world.upstream_calls() == []


def test_a_named_model_revises(start):
    world = start([{"when": {"coached": True}, "text": SAFE}])
    request = {"model": "mock", "messages": [{"role": "user", "content": HARMFUL_PROMPT}]}
    told = evaluate(world, request=request, response=UNSAFE, revise=True)
    assert told["revision"]["text"] == SAFE
    assert told["revision"]["decision"] == "coached" and told["revision"]["rounds"] == 1
    assert len(world.upstream_calls()) == 1


def test_an_over_refusal_is_mended_by_a_named_model(start):
    world = start([{"when": {"coached": True}, "text": HELP}])
    request = {"model": "mock", "messages": [{"role": "user", "content": HARMLESS_PROMPT}]}
    told = evaluate(world, request=request, response=REFUSAL, revise=True)
    assert told["verdict"]["overrefuse"] is True
    assert told["revision"]["text"] == HELP


@pytest.mark.parametrize(
    "body",
    [{}, {"prompt": "x"}, {"response": "x"}, {"prompt": "x", "response": "y", "request": {}}, {"promt": "x"}],
)
def test_a_wrong_evaluation_is_a_bad_request(start, body):
    response = start().http().post("/waltz/v1/evaluate", json=body)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
