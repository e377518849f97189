"""The small language model in the gateway's own process, through the official client. CI has the model."""

import os
from pathlib import Path

import pytest
from openai import NotFoundError, OpenAI
from pydantic import BaseModel
from world import Process

MODELS = Path(os.environ.get("WALTZ_MODELS", Path(__file__).resolve().parents[3] / ".test" / "models"))
HAS_MODEL = (MODELS / "smollm2" / "manifest.json").exists()


class Person(BaseModel):
    name: str
    age: int
    height: float


@pytest.mark.skipif(not HAS_MODEL and not os.environ.get("CI"), reason="waltz model pull smollm2, and set WALTZ_MODELS")
def test_whole_and_streamed_answers_without_key_or_upstream(tmp_path):
    arguments = ["serve", "--offline", "--listen", "127.0.0.1:0", "--data", tmp_path]
    process = Process(arguments, "stderr", {"HOME": str(tmp_path), "WALTZ_MODELS": str(MODELS)})
    try:
        address = process.address(r"listening on (http://\S+)/v1")
        client = OpenAI(base_url=f"{address}/v1", api_key="any")
        asked = {
            "model": "local/smollm2",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 24,
            "temperature": 0,
        }
        whole = client.chat.completions.create(**asked)
        assert "Paris" in whole.choices[0].message.content
        assert whole.usage.completion_tokens > 0
        text = ""
        for chunk in client.chat.completions.create(**asked, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
        assert text == whole.choices[0].message.content
        vector = client.embeddings.create(model="local/smollm2", input="hello").data[0].embedding
        assert len(vector) == 576 and abs(sum(value * value for value in vector) - 1) < 1e-3
        form = {**asked, "max_tokens": 60, "messages": [{"role": "user", "content": "Ann is 31 years old and 1.70 m tall."}]}
        person = client.chat.completions.parse(**form, response_format=Person).choices[0].message.parsed
        assert isinstance(person, Person) and person.name
        for call in (client.chat.completions.create, client.embeddings.create):
            words = {"input": "hello"} if call == client.embeddings.create else {"messages": asked["messages"]}
            for name in ("gpt-4o", "local/minilm"):
                with pytest.raises(NotFoundError) as caught:
                    call(model=name, **words)
                assert caught.value.code == "model_not_found" and "local/smollm2" in str(caught.value)
    finally:
        process.stop()
