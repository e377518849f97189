"""The `start` fixture: a fresh mock upstream and gateway for a test."""

import os

import pytest

from world import World

# The tests talk to this machine alone, whatever proxy the environment names.
for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(name, None)
# Nothing of the developer's own account may reach the clients.
for name in [name for name in os.environ if name.startswith("OPENAI_")]:
    del os.environ[name]


@pytest.fixture
def start(tmp_path):
    """Starts a pair with the mock's replies and further keys of the configuration."""
    worlds = []

    def start_world(replies=(), **config):
        folder = tmp_path / str(len(worlds))
        folder.mkdir()
        world = World(folder, list(replies), config)
        worlds.append(world)
        return world

    yield start_world
    statuses = [world.stop() for world in worlds]
    for world in worlds:
        # Shown by pytest when the test failed.
        print("".join(world.gateway.lines))
    assert statuses == [0] * len(worlds), "the gateway must end cleanly on SIGTERM"
