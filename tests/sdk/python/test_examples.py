"""The examples in `examples/python`, run as a reader would run them, and what they rely on."""

import asyncio
import importlib.util
import os
import subprocess
import sys
import urllib.error

import pytest

from world import HARMFUL_PROMPT, HARMLESS_PROMPT, HELP, REFUSAL, REPO, UNSAFE, leaked

EXAMPLES = REPO / "examples" / "python"


def run(world, name, *arguments, **environment):
    """Runs an example as a program and returns what it prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    variables = {**os.environ, "WALTZ_URL": world.url, **environment}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def load_guard(monkeypatch, url):
    """The example as a module that asks this gateway."""
    monkeypatch.setenv("WALTZ_URL", url)
    found = importlib.util.spec_from_file_location("guard_example", EXAMPLES / "guard.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def answering(text):
    async def execute(prompt):
        return text

    return execute


def test_openai_client(start):
    world = start([{"when": {"coached": True}, "text": HELP}, {"text": REFUSAL}])
    assert run(world, "openai_client.py") == f"{HELP}\nwaltz: coached\n"


def test_guard_as_a_program(start):
    assert run(start(), "guard.py", "What", "is", "a", "dam?") == "You asked: What is a dam?\n"


def test_guard_keeps_a_good_answer(start, monkeypatch):
    world = start()
    guard = load_guard(monkeypatch, world.url)
    assert asyncio.run(guard.guard(answering(HELP))(HARMLESS_PROMPT)) == HELP
    assert world.upstream_calls() == [], "the model is the application's own"


def test_guard_replaces_an_unsafe_answer(start, monkeypatch):
    guard = load_guard(monkeypatch, start().url)
    text = asyncio.run(guard.guard(answering(UNSAFE))(HARMFUL_PROMPT))
    assert text and leaked(UNSAFE, text) == []


def test_guard_shows_nothing_that_was_not_read(start, monkeypatch):
    world = start(keys=[{"name": "app", "sha256": "0" * 64}])
    guard = load_guard(monkeypatch, world.url)
    with pytest.raises(urllib.error.HTTPError) as caught:
        asyncio.run(guard.guard(answering(UNSAFE))(HARMFUL_PROMPT))
    assert caught.value.code == 401


def test_an_evaluation_without_a_model_asks_no_model(start, monkeypatch):
    """Who calls the model elsewhere does not want the text sent to another one; rules revise then."""
    other = start()
    anything = {"name": "any", "url": f"{other.mock_url}/v1", "models": ["*"]}
    world = start([], upstreams=[anything])
    guard = load_guard(monkeypatch, world.url)
    asyncio.run(guard.guard(answering(UNSAFE))(HARMFUL_PROMPT))
    assert [call["body"]["model"] for call in other.upstream_calls()] == []
