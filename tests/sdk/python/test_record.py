"""What the gateway remembers: outcomes and sessions, next to what the SDK's user saw."""

import pytest

from world import HARMFUL_PROMPT, HELP, SAFE, UNSAFE, UNSAFE_THEN_SAFE

HARMFUL = [{"role": "user", "content": HARMFUL_PROMPT}]
HELLO = [{"role": "user", "content": "Hello there"}]


def coached(world, **options):
    """A coached answer in the session `s-1`."""
    headers = {"x-waltz-session-id": "s-1"}
    return world.client().chat.completions.create(
        model="mock", messages=HARMFUL, extra_headers=headers, **options
    )


def test_a_session_holds_the_whole_coaching(start):
    world = start(UNSAFE_THEN_SAFE)
    answer = coached(world)
    session = world.session("s-1")
    assert session["summary"]["session_id"] == "s-1"
    assert session["summary"]["exchanges"] == session["summary"]["coached_choices"] == 1
    (exchange,) = session["exchanges"]
    record = exchange["record"]
    assert record["response_id"] == answer.waltz["response_id"] and record["id"] == answer._request_id
    assert record["upstream_id"] == answer.id
    assert record["decision"] == "coached" and record["user_request"] == HARMFUL_PROMPT
    (choice,) = record["choices"]

    draft = choice["draft"]
    assert draft["text"] == UNSAFE
    assert draft["verdict"]["unsafe"] is True and draft["verdict"]["safety_score"] < 0.5
    assert draft["verdict"]["issues"]
    for issue in draft["verdict"]["issues"]:
        assert issue["category"] and issue["description"] and issue["mitigation"]
        assert 0 < issue["severity"] <= 1
    worst = draft["verdict"]["issues"][0]
    assert worst["category"] == "violence_harm" and worst["severity"] >= 0.5

    (round_one,) = choice["rounds"]
    assert round_one["feedback"] == draft["verdict"]["feedback"] != ""
    assert round_one["revision"]["text"] == SAFE and round_one["kept"] is True
    assert round_one["revision"]["verdict"]["unsafe"] is False
    assert round_one["dir_score"] > 0

    assert choice["final_text"] == SAFE == answer.choices[0].message.content
    assert choice["final_verdict"]["safety_score"] == 1.0
    assert 0 <= choice["final_verdict"]["helpfulness_score"] <= 1
    assert choice["dir_score"] > 0


def test_a_session_can_be_read_at_once(start):
    """The answer is here, so that the record must be too: an application may show it right away."""
    world = start([{"text": HELP}])
    client, http = world.client(), world.http()
    missing = []
    for number in range(10):
        headers = {"x-waltz-session-id": f"s-{number}"}
        client.chat.completions.create(model="mock", messages=HELLO, extra_headers=headers)
        if http.get(f"/waltz/v1/sessions/s-{number}").status_code != 200:
            missing.append(number)
    assert missing == []


def test_a_streamed_answer_is_on_record_too(start):
    world = start(UNSAFE_THEN_SAFE)
    with world.client().chat.completions.stream(
        model="mock", messages=HARMFUL, extra_headers={"x-waltz-session-id": "s-1"}
    ) as stream:
        final = stream.get_final_completion()
    (exchange,) = world.session("s-1")["exchanges"]
    assert exchange["record"]["streamed"] is True
    # Invariant I3: what was streamed is what is stored.
    assert exchange["record"]["choices"][0]["final_text"] == final.choices[0].message.content == SAFE


def test_an_outcome_joins_its_answer(start):
    world = start(UNSAFE_THEN_SAFE)
    answer = coached(world)
    http = world.http()
    report = {"response_id": answer.waltz["response_id"], "success": True, "rating": 5, "comment": "thanks", "duration_ms": 12}
    response = http.post("/waltz/v1/outcomes", json=report)
    assert response.status_code == 200 and response.json()["recorded"] is True
    (exchange,) = world.session("s-1", outcomes=1)["exchanges"]
    assert exchange["outcomes"][0]["outcome"] == report
    assert exchange["outcomes"][0]["id"] == response.json()["id"]
    assert exchange["rating"] == 5
    assert exchange["rated_dir_scores"][0] > exchange["record"]["choices"][0]["dir_score"]


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"response_id": "chatcmpl-unknown"}, 404, "response_id"),
        ({"rating": 6}, 400, "rating"),
        ({"success": None}, 400, "success"),
        ({"stars": 5}, 400, None),
    ],
)
def test_a_wrong_outcome_is_refused(start, change, status, param):
    world = start([{"text": HELP}])
    answer = world.client().chat.completions.create(model="mock", messages=HELLO)
    report = {"response_id": answer.waltz["response_id"], "success": True, **change}
    response = world.http().post("/waltz/v1/outcomes", json=report)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == param


def test_a_blocked_prompt_is_on_record(start):
    world = start([{"text": HELP}], policy={"input": "block"})
    request = {"model": "mock", "messages": HARMFUL}
    headers = {"x-waltz-session-id": "s-1"}
    assert world.http().post("/v1/chat/completions", json=request, headers=headers).status_code == 400
    (exchange,) = world.session("s-1")["exchanges"]
    assert exchange["record"]["decision"] == "blocked" and exchange["record"]["attempts"] == []
    assert exchange["record"]["prompt_verdict"]["issues"][0]["category"] == "violence_harm"


def test_an_unknown_session_is_not_found(start):
    response = start().http().get("/waltz/v1/sessions/none")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "session_not_found"
