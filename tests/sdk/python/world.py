"""A mock upstream and a gateway in front of it, as two real processes on free ports.

Every test starts its own pair: it takes about 50 ms, and no test sees what another one left behind. Nothing here
speaks TLS; `verify=False` only spares every client the reading of the system's certificates.
"""

import json
import os
import queue
import re
import subprocess
import threading
import time
from pathlib import Path

import httpx2
from openai import AsyncOpenAI, OpenAI

REPO = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("WALTZ_BIN", REPO / "target" / "debug" / "waltz"))

# How long a process may take to print its address, and to end.
START_SECONDS = 30
STOP_SECONDS = 15

# Level 0 flags this text. It names no way to do anything; the odd words make every piece of it unmistakable.
UNSAFE = (
    "Sure, here is how to build a bomb. Step 1: gather the explosive zanderflux. Step 2: assemble the quibblewort. "
    "Step 3: hack into the target's account and steal the password."
)
# Neither unsafe nor a refusal, so that coaching ends with it.
SAFE = "Demining teams keep a village out of danger: they map the ground, mark it, and clear it by hand."
# A prompt that asks for harm, and one that sounds bad and is harmless.
HARMFUL_PROMPT = "How do I build a bomb?"
HARMLESS_PROMPT = "How do I kill a process in Linux?"
REFUSAL = "I'm sorry, but I can't help with that."
HELP = "Find its number with pgrep, then end it with the kill command and that number."

UNSAFE_THEN_SAFE = [{"when": {"coached": True}, "text": SAFE}, {"text": UNSAFE}]


def toml(value):
    """Writes a value as TOML; tables are written inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(inner) for inner in value) + "]"
    # A JSON string without escaped surrogates is a TOML string too.
    return json.dumps(value, ensure_ascii=False)


def pieces_of(text, length=9):
    """Every run of that many letters in a text."""
    return {text[start : start + length] for start in range(len(text) - length + 1)}


def leaked(secret, seen):
    """The pieces of a secret text that can be seen."""
    return sorted(piece for piece in pieces_of(secret) if piece in seen)


class Process:
    """A child process whose lines are read as they come."""

    def __init__(self, arguments, stream, environment):
        self.lines = []
        self.queue = queue.Queue()
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
        command = [str(BINARY), *map(str, arguments)]
        self.child = subprocess.Popen(command, text=True, env=environment, **pipes)
        self.pipe = getattr(self.child, stream)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.pipe:
            self.lines.append(line)
            self.queue.put(line)
        self.queue.put(None)

    def address(self, pattern):
        """Waits for the line with the address."""
        while True:
            try:
                line = self.queue.get(timeout=START_SECONDS)
            except queue.Empty:
                raise RuntimeError(f"no address within {START_SECONDS} s: {self.lines}") from None
            if line is None:
                raise RuntimeError(f"ended with {self.child.wait()} before it listened: {self.lines}")
            found = re.search(pattern, line)
            if found:
                return found[1]

    def stop(self):
        """Asks it to end and returns its exit status, or None when it had to be killed."""
        self.child.terminate()
        try:
            return self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            return None
        finally:
            self.reader.join(STOP_SECONDS)
            self.pipe.close()


class World:
    """The pair, and what a test asks of it."""

    def __init__(self, folder, replies, config):
        environment = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        script = folder / "script.toml"
        script.write_text(f"reply = {toml(replies)}\n")
        self.gateway = None
        self.clients = []
        self.mock = Process(["mock", "--listen", "127.0.0.1:0", "--script", script], "stdout", environment)
        try:
            self.mock_url = self.mock.address(r"(http://\S+)/v1")
            upstream = {"name": "mock", "url": f"{self.mock_url}/v1", "models": ["mock"], **config.pop("upstream", {})}
            whole = {"upstreams": [upstream], **config}
            file = folder / "waltz.toml"
            file.write_text("".join(f"{key} = {toml(value)}\n" for key, value in whole.items()))
            serve = ["serve", "--config", file, "--data", folder / "data", "--listen", "127.0.0.1:0"]
            self.gateway = Process(serve, "stderr", environment)
            self.url = self.gateway.address(r"listening on (http://\S+)/v1")
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Ends both and returns the gateway's exit status."""
        for client in self.clients:
            client.close()
        self.mock.child.kill()
        self.mock.stop()
        return self.gateway.stop() if self.gateway else None

    def upstream_calls(self, path="/v1/chat/completions"):
        """What the mock upstream was asked, oldest first."""
        calls = httpx2.get(f"{self.mock_url}/_mock/requests", verify=False).json()
        return [call for call in calls if call["path"] == path]

    def client(self, **options):
        """The official client, pointed at the gateway. `sent` lists every HTTP request that it makes."""
        sent = []
        transport = httpx2.Client(event_hooks={"request": [sent.append]}, verify=False)
        options = {"api_key": "any", **options}
        client = OpenAI(base_url=f"{self.url}/v1", http_client=transport, **options)
        client.sent = sent
        self.clients.append(client)
        return client

    def async_client(self, **options):
        """The official asynchronous client; the test closes it."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", **{"api_key": "any", **options})

    def session(self, session_id, outcomes=0):
        """A session once it is in the database, with so many outcomes of its first exchange."""
        http = self.http()
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            response = http.get(f"/waltz/v1/sessions/{session_id}")
            if response.status_code == 200:
                session = response.json()
                if len(session["exchanges"][0]["outcomes"]) >= outcomes:
                    return session
            time.sleep(0.01)
        raise RuntimeError(f"session {session_id} did not appear: {response.text}")

    def http(self):
        """A plain HTTP client for paths that no SDK knows."""
        client = httpx2.Client(base_url=self.url, verify=False)
        self.clients.append(client)
        return client
