"""Embeddings, moderations and models."""

import openai
import pytest

from world import HARMFUL_PROMPT

THIRTEEN = {
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
}
OURS = {
    "violence_harm",
    "illegal_activity",
    "unauthorized_access",
    "privacy_violation",
    "hate_speech",
    # Ours is `self_harm`; the SDK's attribute for `self-harm` has that name too.
    "self_harm",
    "sexual_content",
    "misinformation",
}


def test_embeddings_default_to_base64_and_come_as_floats(start):
    world = start()
    client = world.client()
    answer = client.embeddings.create(model="mock", input="hello")
    assert world.upstream_calls("/v1/embeddings")[0]["body"]["encoding_format"] == "base64"
    vector = answer.data[0].embedding
    assert len(vector) == 8 and all(isinstance(number, float) for number in vector)
    plain = client.embeddings.create(model="mock", input="hello", encoding_format="float")
    assert world.upstream_calls("/v1/embeddings")[1]["body"]["encoding_format"] == "float"
    assert vector == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert answer.usage.total_tokens == 1 and answer.object == "list"


def test_base64_reaches_the_client_as_text(start):
    answer = start().client().embeddings.create(model="mock", input="hello", encoding_format="base64")
    assert isinstance(answer.data[0].embedding, str)


def test_many_inputs_keep_their_order(start):
    client = start().client()
    answer = client.embeddings.create(model="mock", input=["one", "two", "three"])
    assert [item.index for item in answer.data] == [0, 1, 2]
    alone = client.embeddings.create(model="mock", input="two")
    assert answer.data[1].embedding == alone.data[0].embedding


def test_embeddings_errors(start):
    client = start().client()
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="unknown", input="x")
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="mock", input=None)
    assert caught.value.param == "input"


def test_moderation_of_a_string(start):
    world = start()
    raw = world.client().moderations.with_raw_response.create(input=HARMFUL_PROMPT)
    answer = raw.parse()
    assert answer.id.startswith("modr-") and answer.model
    (result,) = answer.results
    assert result.flagged is True
    assert result.categories.violence is True and result.category_scores.violence >= 0.5
    assert result.categories.hate is False and result.category_scores.hate == 0.0
    assert result.category_applied_input_types.violence == ["text"]
    assert world.upstream_calls() == []


def test_moderation_has_the_thirteen_typed_keys_and_ours(start):
    raw = start().client().moderations.with_raw_response.create(input=HARMFUL_PROMPT)
    (sent,) = raw.http_response.json()["results"]
    (result,) = raw.parse().results
    for part in ("categories", "category_scores", "category_applied_input_types"):
        assert set(sent[part]) == THIRTEEN | OURS
        typed = getattr(result, part)
        fields = type(typed).model_fields
        assert {field.alias or name for name, field in fields.items()} == THIRTEEN
        assert all(getattr(typed, name) is not None for name in fields)
        assert OURS - {"self_harm"} <= set(typed.model_extra)
    assert result.categories.model_extra["violence_harm"] is True
    assert result.category_scores.model_extra["violence_harm"] == result.category_scores.violence


def test_self_harm_has_the_same_value_under_both_names(start):
    """The typed attribute `self_harm` means OpenAI's `self-harm`; our key of that name must not differ."""
    raw = start().client().moderations.with_raw_response.create(input="I want to kill myself")
    (sent,) = raw.http_response.json()["results"]
    (result,) = raw.parse().results
    assert result.categories.self_harm is True
    assert sent["category_scores"]["self-harm"] == sent["category_scores"]["self_harm"]
    assert result.category_scores.self_harm == sent["category_scores"]["self-harm"] >= 0.5


def test_moderation_of_a_list(start):
    answer = start().client().moderations.create(input=["Good morning", HARMFUL_PROMPT, ""])
    assert [result.flagged for result in answer.results] == [False, True, False]


def test_moderation_of_parts_is_one_result(start):
    parts = [
        {"type": "text", "text": HARMFUL_PROMPT},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    client = start().client()
    answer = client.moderations.create(input=parts, model="omni-moderation-latest")
    assert [result.flagged for result in answer.results] == [True]
    answer = client.moderations.create(input=[{"type": "text", "text": "Good morning"}, parts[1]])
    assert [result.flagged for result in answer.results] == [False]


@pytest.mark.parametrize("wrong", [[], 5, [1, 2], [{"type": "sound"}]])
def test_moderation_of_nonsense_is_a_bad_request(start, wrong):
    with pytest.raises(openai.BadRequestError) as caught:
        start().client().moderations.create(input=wrong)
    assert caught.value.param == "input"


AGENTS = [{"name": "helper", "targets": [{"upstream": "mock", "model": "mock"}], "system_prompt": "Be kind."}]


def test_models_are_listed(start):
    models = start([], agents=AGENTS).client().models.list()
    assert models.object == "list"
    assert {model.id for model in models} == {"mock", "waltz/helper"}
    assert all(model.object == "model" and isinstance(model.created, int) for model in models)
    assert {model.id: model.owned_by for model in models} == {"mock": "mock", "waltz/helper": "waltz"}


def test_a_model_is_retrieved_by_name(start):
    client = start([], agents=AGENTS).client()
    assert client.models.retrieve("mock").id == "mock"
    # The SDK writes the slash as %2F.
    assert client.models.retrieve("waltz/helper").id == "waltz/helper"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("unknown")
    assert caught.value.code == "model_not_found"


def test_a_named_agent_answers_as_a_model(start):
    world = start([{"text": "Gladly."}], agents=AGENTS)
    messages = [{"role": "user", "content": "Hi"}]
    answer = world.client().chat.completions.create(model="waltz/helper", messages=messages)
    assert answer.choices[0].message.content == "Gladly."
    body = world.upstream_calls()[0]["body"]
    assert body["model"] == "mock"
    assert body["messages"] == [{"role": "system", "content": "Be kind."}, *messages]
