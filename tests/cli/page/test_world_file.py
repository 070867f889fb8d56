"""A world file is read again when it changed and is written; what cannot be read is said, and changes nothing."""

import os

import pytest

from tests import builders as b
from webhook.cli.page.run import FollowedFile, reading_of
from webhook.cli.world_source import WorldError, WorldObjects
from webhook.core.model.policy import Policy

AT = 1_795_342_000


class Followed:
    """A file of a list of nodes, and what follows it."""

    def __init__(self, path):
        self.path = path
        self.reads = 0
        self.write("a")
        self.file = FollowedFile(path, self._read, domain="zone")

    def _read(self):
        self.reads += 1
        names = self.path.read_text().split()
        if "broken" in names:
            raise WorldError("world.yaml:3: not valid YAML")
        return reading_of(WorldObjects(tuple(b.node(name, gpus=8) for name in names)), Policy(), "test")

    def write(self, text, at=AT):
        self.path.write_text(text)
        os.utime(self.path, (at, at))

    @property
    def nodes(self):
        return [node.name for node in self.file.state.world.fleet.nodes()]

    async def look(self, times=2):
        for _ in range(times):
            await self.file.look()


@pytest.fixture
def followed(tmp_path):
    return Followed(tmp_path / "world.yaml")


async def test_a_file_that_changed_is_read_again_once_it_stays_the_same(followed):
    state = followed.file.state
    assert (followed.nodes, state.saved, state.why_stale()) == (["a"], AT, None)
    followed.write("a b", AT + 60)
    await followed.look(times=1)
    assert followed.nodes == ["a"], "it may still be written"
    await followed.look(times=1)
    assert (followed.nodes, state.saved) == (["a", "b"], AT + 60)
    await followed.look(times=5)
    assert followed.reads == 2, "as often as it changed"


@pytest.mark.parametrize(("text", "why"), [("broken", "not valid YAML"), ("", "there is no object in it")])
async def test_what_cannot_be_read_is_said_and_what_was_read_stays(followed, text, why):
    state = followed.file.state
    followed.write(text, AT + 60)
    await followed.look(times=3)
    assert why in state.why_stale()
    assert (followed.nodes, state.saved, followed.reads) == (["a"], AT, 2)
    followed.write("c", AT + 120)
    await followed.look()
    assert (followed.nodes, state.why_stale()) == (["c"], None)


async def test_a_file_that_is_gone_may_come_back(followed):
    followed.path.unlink()
    await followed.look()
    assert "cannot be read" in followed.file.state.why_stale()
    assert followed.nodes == ["a"]
    followed.write("a")
    await followed.look()
    assert (followed.nodes, followed.file.state.why_stale()) == (["a"], None)


def test_a_file_that_is_not_there_at_first_is_an_error(tmp_path):
    with pytest.raises(WorldError, match="cannot be read"):
        FollowedFile(tmp_path / "none.yaml", lambda: None, domain="zone")
