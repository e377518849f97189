// The official OpenAI SDK for JavaScript, unmodified, against the gateway (F-24).

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { HARMFUL, HELLO, HELP, SAFE, UNSAFE, UNSAFE_THEN_SAFE, leaked, start } from './world.js';

/** Awaits a promise that must fail with that class of error. */
async function fails(promise, kind) {
  const error = await promise.then(
    () => assert.fail(`no ${kind.name} was thrown`),
    (thrown) => thrown,
  );
  assert.equal(error.constructor, kind, String(error));
  assert.deepEqual(Object.keys(error.error).sort(), ['code', 'message', 'param', 'type']);
  assert.match(error.requestID, /^req_/);
  return error;
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');

test('create', async (t) => {
  const client = (await start(t, [{ text: HELP }])).client();
  const answer = await client.chat.completions.create({ model: 'mock', messages: HELLO });
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices[0].message.content, HELP);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.match(answer._request_id, /^req_/);
  assert.equal(answer.waltz.decision, 'released');
  assert.equal(answer.waltz.evaluation_id, answer._request_id);
  assert.equal(client.sent.length, 1);
});

test('headers with the raw response', async (t) => {
  const client = (await start(t, [{ text: HELP }])).client();
  const { data, response } = await client.chat.completions.create({ model: 'mock', messages: HELLO }).withResponse();
  assert.equal(response.headers.get('x-waltz-decision'), 'released');
  assert.equal(response.headers.get('x-request-id'), data._request_id);
});

test('unknown fields reach the upstream untouched', async (t) => {
  const world = await start(t, [{ text: HELP }]);
  const request = { model: 'mock', messages: HELLO, top_k: 3, novel: { deep: [1, null, 'ä'] } };
  await world.client().chat.completions.create(request);
  const [call] = await world.upstreamCalls();
  assert.deepEqual(call.body, request);
  assert.deepEqual(Object.keys(call.headers).filter((name) => name.startsWith('x-stainless')), []);
});

test('stream iteration', async (t) => {
  const client = (await start(t, [{ text: HELP, chunk_letters: 5 }])).client();
  const request = { model: 'mock', messages: HELLO, stream: true, stream_options: { include_usage: true } };
  const chunks = await collect(await client.chat.completions.create(request));
  assert.equal(textOf(chunks), HELP);
  assert.ok(chunks.length > 10);
  assert.equal(new Set(chunks.map((chunk) => `${chunk.id} ${chunk.created} ${chunk.object}`)).size, 1);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, HELP.split(' ').length);
});

test('stream helper accumulates the answer', async (t) => {
  const client = (await start(t, [{ text: HELP, chunk_letters: 3 }])).client();
  const request = { model: 'mock', messages: HELLO, stream_options: { include_usage: true } };
  const seen = [];
  const stream = client.chat.completions.stream(request).on('content', (delta) => seen.push(delta));
  assert.equal(await stream.finalContent(), HELP);
  assert.equal(seen.join(''), HELP);
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, 'stop');
  assert.equal(final.usage.completion_tokens, HELP.split(' ').length);
});

test('stream helper keeps moderation, usage and the waltz object', async (t) => {
  const client = (await start(t, [{ text: HELP }])).client();
  const request = {
    model: 'mock',
    messages: HELLO,
    stream_options: { include_usage: true },
    moderation: { model: 'omni-moderation-latest' },
  };
  const final = await client.chat.completions.stream(request).finalChatCompletion();
  assert.equal(final.choices[0].message.content, HELP);
  assert.equal(final.usage.completion_tokens, HELP.split(' ').length);
  assert.equal(final.moderation.output.results[0].flagged, false);
  assert.equal(final.waltz.decision, 'released');
});

const Place = z.object({ name: z.string(), city: z.string() });
const GOOD = JSON.stringify({ name: 'Louvre', city: 'Paris' });
const BAD = JSON.stringify({ name: UNSAFE, city: 'Paris' });
const structured = { model: 'mock', messages: HELLO, response_format: zodResponseFormat(Place, 'place') };

for (const [name, ask] of [
  ['parse', (client) => client.chat.completions.parse(structured)],
  ['stream with a schema', (client) => client.chat.completions.stream(structured).finalChatCompletion()],
]) {
  test(`${name}: a good answer`, async (t) => {
    const answer = await ask((await start(t, [{ text: GOOD }])).client());
    assert.deepEqual(answer.choices[0].message.parsed, { name: 'Louvre', city: 'Paris' });
  });

  test(`${name}: unsafe, then good`, async (t) => {
    const replies = [{ when: { coached: true }, text: GOOD }, { text: BAD }];
    const answer = await ask((await start(t, replies)).client());
    assert.deepEqual(answer.choices[0].message.parsed, { name: 'Louvre', city: 'Paris' });
  });

  test(`${name}: what stays unsafe is a refusal and no exception`, async (t) => {
    const answer = await ask((await start(t, [{ text: BAD }])).client());
    const [{ message, finish_reason }] = answer.choices;
    assert.equal(finish_reason, 'stop');
    assert.ok(message.refusal);
    assert.ok(!message.parsed && !message.content);
    assert.deepEqual(leaked(UNSAFE, JSON.stringify(answer)), []);
  });
}

const weather = {
  type: 'function',
  function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
};
const ARGUMENTS = ['{"city": "Paris", "note": "grüße 東京"}', '{"city": "Rome"}'];
const CALLS = ARGUMENTS.map((text) => ({ name: 'weather', arguments: text }));

test('streamed tool calls assemble', async (t) => {
  const client = (await start(t, [{ tool_calls: CALLS, chunk_letters: 4 }])).client();
  const stream = client.chat.completions.stream({ model: 'mock', messages: HELLO, tools: [weather] });
  const { choices } = await stream.finalChatCompletion();
  assert.deepEqual(choices[0].message.tool_calls.map((call) => call.function.arguments), ARGUMENTS);
  assert.equal(choices[0].finish_reason, 'tool_calls');
  assert.ok(!choices[0].message.content);
});

test('the tool runner completes a whole turn', async (t) => {
  const world = await start(t, [{ times: 1, tool_calls: CALLS.slice(1) }, { text: 'Sunny.' }]);
  const asked = [];
  const tool = {
    type: 'function',
    function: {
      ...weather.function,
      parse: JSON.parse,
      function: ({ city }) => {
        asked.push(city);
        return { sky: 'clear' };
      },
    },
  };
  const runner = world.client().chat.completions.runTools({ model: 'mock', messages: HELLO, tools: [tool], stream: true });
  assert.equal(await runner.finalContent(), 'Sunny.');
  assert.deepEqual(asked, ['Rome']);
  const [, second] = await world.upstreamCalls();
  assert.equal(second.body.messages.at(-1).content, '{"sky":"clear"}');
});

test('unsafe tool arguments never reach the client', async (t) => {
  const bad = { tool_calls: [{ name: 'weather', arguments: JSON.stringify({ city: UNSAFE }) }], chunk_letters: 3 };
  const client = (await start(t, [{ when: { coached: true }, text: SAFE }, bad])).client();
  const chunks = await collect(
    await client.chat.completions.create({ model: 'mock', messages: HELLO, tools: [weather], stream: true }),
  );
  assert.equal(textOf(chunks), SAFE);
  assert.ok(chunks.every((chunk) => !chunk.choices[0].delta.tool_calls));
});

test('embeddings as base64 and as floats', async (t) => {
  const world = await start(t);
  const client = world.client();
  const { data } = await client.embeddings.create({ model: 'mock', input: ['one', 'two'] });
  assert.equal((await world.upstreamCalls('/v1/embeddings'))[0].body.encoding_format, 'base64');
  assert.deepEqual(data.map((item) => item.index), [0, 1]);
  const plain = await client.embeddings.create({ model: 'mock', input: 'two', encoding_format: 'float' });
  const vector = Array.from(data[1].embedding);
  assert.equal(vector.length, 8);
  vector.forEach((number, at) => assert.ok(Math.abs(number - plain.data[0].embedding[at]) < 1e-6));
});

test('moderations', async (t) => {
  const client = (await start(t)).client();
  const text = HARMFUL[0].content;
  const { results } = await client.moderations.create({ input: ['Good morning', text] });
  assert.deepEqual(results.map((result) => result.flagged), [false, true]);
  assert.equal(results[1].categories.violence, true);
  assert.equal(results[1].categories.violence_harm, true);
  assert.equal(Object.keys(results[1].category_scores).length, 13 + 8);
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } };
  const parts = await client.moderations.create({ input: [{ type: 'text', text }, image] });
  assert.deepEqual(parts.results.map((result) => result.flagged), [true]);
});

test('models', async (t) => {
  const agents = [{ name: 'helper', targets: [{ upstream: 'mock', model: 'mock' }] }];
  const client = (await start(t, [], { agents })).client();
  const ids = (await collect(client.models.list())).map((model) => model.id);
  assert.deepEqual(ids.sort(), ['mock', 'waltz/helper']);
  assert.equal((await client.models.retrieve('waltz/helper')).id, 'waltz/helper');
  const error = await fails(client.models.retrieve('unknown'), OpenAI.NotFoundError);
  assert.equal(error.code, 'model_not_found');
});

test('bad request', async (t) => {
  const client = (await start(t)).client();
  const error = await fails(client.chat.completions.create({ model: 'mock', messages: [] }), OpenAI.BadRequestError);
  assert.equal(error.param, 'messages');
  assert.equal(client.sent.length, 1);
});

test('authentication', async (t) => {
  const sha256 = createHash('sha256').update('right').digest('hex');
  const world = await start(t, [{ text: HELP }], { keys: [{ name: 'app', sha256 }] });
  const ask = (apiKey) => world.client({ apiKey }).chat.completions.create({ model: 'mock', messages: HELLO });
  const error = await fails(ask('wrong'), OpenAI.AuthenticationError);
  assert.equal(error.code, 'invalid_api_key');
  assert.equal((await ask('right')).choices[0].message.content, HELP);
});

test('unknown model', async (t) => {
  const client = (await start(t)).client();
  const error = await fails(client.chat.completions.create({ model: 'gpt-x', messages: HELLO }), OpenAI.NotFoundError);
  assert.equal(error.code, 'model_not_found');
});

test('rate limit', async (t) => {
  const world = await start(t, [{ status: 429, headers: { 'retry-after': '7' } }]);
  const asked = world.client({ maxRetries: 0 }).chat.completions.create({ model: 'mock', messages: HELLO });
  const error = await fails(asked, OpenAI.RateLimitError);
  assert.equal(error.headers.get('retry-after'), '7');
});

test('failing upstream', async (t) => {
  const world = await start(t, [{ status: 500 }], { retry: { max_retries: 0 } });
  const asked = world.client({ maxRetries: 0 }).chat.completions.create({ model: 'mock', messages: HELLO });
  const error = await fails(asked, OpenAI.InternalServerError);
  assert.equal(error.status, 502);
});

test('an upstream that breaks off raises in the stream', async (t) => {
  // The pause lets the head of the stream leave before the cut.
  const client = (await start(t, [{ text: UNSAFE, cut_after: 4, chunk_delay_ms: 20 }])).client({ maxRetries: 0 });
  const stream = await client.chat.completions.create({ model: 'mock', messages: HELLO, stream: true });
  await assert.rejects(collect(stream), (error) => error instanceof OpenAI.APIError && error.code === 'upstream_unavailable');
});

for (const stream of [false, true]) {
  test(`a blocked prompt is one request and no upstream call (stream: ${stream})`, async (t) => {
    const world = await start(t, [{ text: HELP }], { policy: { input: 'block' } });
    const client = world.client();
    assert.equal(client.maxRetries, 2, 'the SDK must be free to retry');
    const error = await fails(
      client.chat.completions.create({ model: 'mock', messages: HARMFUL, stream }),
      OpenAI.BadRequestError,
    );
    assert.equal(error.code, 'waltz_input_blocked');
    assert.equal(client.sent.length, 1);
    assert.deepEqual(await world.upstreamCalls(), []);
  });
}

test('the request counter sees retries', async (t) => {
  const client = (await start(t, [{ status: 429, headers: { 'retry-after-ms': '5' } }])).client();
  await fails(client.chat.completions.create({ model: 'mock', messages: HELLO }), OpenAI.RateLimitError);
  assert.equal(client.sent.length, 3);
});

test('a blocked prompt by the moderation parameter', async (t) => {
  const world = await start(t, [{ text: HELP }]);
  const client = world.client();
  const moderation = { model: 'omni-moderation-latest', policy: { input: { mode: 'block' } } };
  await fails(client.chat.completions.create({ model: 'mock', messages: HARMFUL, moderation }), OpenAI.BadRequestError);
  assert.equal(client.sent.length, 1);
  assert.deepEqual(await world.upstreamCalls(), []);
});

test('unsafe, then safe: only the safe text is streamed', async (t) => {
  const world = await start(t, UNSAFE_THEN_SAFE);
  const request = { model: 'mock', messages: HARMFUL, stream: true };
  const raw = await world.client().chat.completions.create(request).asResponse();
  const bytes = await raw.text();
  assert.deepEqual(leaked(UNSAFE, bytes), []);
  assert.ok(bytes.endsWith('\n\ndata: [DONE]\n\n'));
  assert.equal(textOf(await collect(await world.client().chat.completions.create(request))), SAFE);
  const helper = world.client().chat.completions.stream({ model: 'mock', messages: HARMFUL });
  assert.equal(await helper.finalContent(), SAFE);
});

test('unsafe, then safe: only the safe text is in JSON', async (t) => {
  const client = (await start(t, UNSAFE_THEN_SAFE)).client();
  const answer = await client.chat.completions.create({ model: 'mock', messages: HARMFUL });
  assert.equal(answer.choices[0].message.content, SAFE);
  assert.equal(answer.waltz.decision, 'coached');
  assert.deepEqual(leaked(UNSAFE, JSON.stringify(answer)), []);
});
