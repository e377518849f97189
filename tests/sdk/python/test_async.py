"""The asynchronous client: the same answers, and many at once."""

import asyncio

import openai
import pytest

from world import HARMFUL_PROMPT, HELP, SAFE, UNSAFE_THEN_SAFE

HELLO = [{"role": "user", "content": "Hello there"}]
HARMFUL = [{"role": "user", "content": HARMFUL_PROMPT}]


def run(world, work, **options):
    """Runs a coroutine with a client that is closed afterwards."""

    async def with_client():
        async with world.async_client(**options) as client:
            return await work(client)

    return asyncio.run(with_client())


def test_create_and_stream(start):
    async def work(client):
        answer = await client.chat.completions.create(model="mock", messages=HARMFUL)
        stream = await client.chat.completions.create(model="mock", messages=HARMFUL, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        async with client.chat.completions.stream(model="mock", messages=HARMFUL) as helper:
            final = await helper.get_final_completion()
        return answer.choices[0].message.content, streamed, final.choices[0].message.content

    assert run(start(UNSAFE_THEN_SAFE), work) == (SAFE, SAFE, SAFE)


def test_many_requests_at_once_get_their_own_answers(start):
    async def work(client):
        async def ask(number):
            messages = [{"role": "user", "content": f"echo number {number}"}]
            answer = await client.chat.completions.create(model="mock", messages=messages)
            return answer.choices[0].message.content

        return await asyncio.gather(*(ask(number) for number in range(40)))

    assert run(start(), work) == [f"echo number {number}" for number in range(40)]


def test_other_endpoints(start):
    async def work(client):
        vector = (await client.embeddings.create(model="mock", input="x")).data[0].embedding
        flagged = (await client.moderations.create(input=HARMFUL_PROMPT)).results[0].flagged
        models = [model.id async for model in client.models.list()]
        return len(vector), flagged, models

    assert run(start(), work) == (8, True, ["mock"])


def test_a_blocked_prompt_is_one_request(start):
    world = start([{"text": HELP}], policy={"input": "block"})
    sent = []

    async def count(request):
        sent.append(request)

    async def work(_):
        transport = openai.DefaultAsyncHttpx2Client(event_hooks={"request": [count]})
        async with world.async_client(http_client=transport) as client:
            await client.chat.completions.create(model="mock", messages=HARMFUL)

    with pytest.raises(openai.BadRequestError) as caught:
        run(world, work)
    assert caught.value.code == "waltz_input_blocked"
    assert len(sent) == 1 and world.upstream_calls() == []
