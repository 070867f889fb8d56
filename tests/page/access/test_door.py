"""Doors: a URL opens once; tokens are asked about once a minute, and not without end."""

import asyncio

import pytest

from webhook.cluster.reads.caller_rights import Identity
from webhook.page.access.door import SESSIONS, SIGN_INS, Caller, ClusterDoor, LocalDoor, TooManySignInsError
from webhook.page.views.viewer import EVERYTHING, Viewer


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class FakeRights:
    def __init__(self):
        self.asked = []
        self.namespaces = frozenset({"nlp"})

    async def identity(self, token):
        self.asked.append(token)
        await asyncio.sleep(0)
        return Identity(token.removeprefix("good-")) if token.startswith("good-") else None

    async def viewer(self, identity, namespaces):
        return Viewer(identity.name, self.namespaces & set(namespaces))


@pytest.fixture
def rights():
    return FakeRights()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def door(rights, clock):
    return ClusterDoor(rights, namespaces=lambda: ("nlp", "vision"), clock=clock)


async def test_the_url_opens_the_page_once():
    door = LocalDoor()
    assert await door.enter("guess") == ""
    cookie = await door.enter(door.token)
    assert await door.viewer(Caller(cookie)) is EVERYTHING
    assert await door.enter(door.token) == ""
    assert await door.viewer(Caller("other")) is None
    assert await door.viewer(Caller(bearer=door.token)) is None
    door.leave(cookie)
    assert await door.viewer(Caller(cookie)) is None


async def test_a_token_enters_with_the_rights_that_it_has(door):
    assert await door.enter("bad") == ""
    assert await door.enter("") == ""
    assert await door.enter("good-" + "x" * 10**6) == ""
    cookie = await door.enter(" good-nina\n")
    assert await door.viewer(Caller(cookie)) == Viewer("nina", frozenset({"nlp"}))
    assert await door.viewer(Caller(bearer="good-nina")) == Viewer("nina", frozenset({"nlp"}))
    assert await door.viewer(Caller(bearer="bad")) is None
    assert await door.viewer(Caller()) is None


async def test_rights_that_end_are_noticed_within_a_minute(door, rights, clock):
    cookie = await door.enter("good-nina")
    rights.namespaces = frozenset()
    clock.now += 59
    assert not (await door.viewer(Caller(cookie))).sees_nothing
    clock.now += 2
    assert (await door.viewer(Caller(cookie))).sees_nothing
    assert rights.asked == ["good-nina"] * 2


async def test_requests_at_the_same_time_ask_once(door, rights):
    await asyncio.gather(*(door.viewer(Caller(bearer="good-nina")) for _ in range(50)))
    assert rights.asked == ["good-nina"]


async def test_guesses_without_end_do_not_reach_the_api_server(door, rights, clock):
    known = await door.enter("good-nina")
    for number in range(SIGN_INS - 1):
        await door.enter(f"guess-{number}")
    with pytest.raises(TooManySignInsError):
        await door.enter("another guess")
    assert len(rights.asked) == SIGN_INS
    assert await door.viewer(Caller(known)) is not None, "who is in stays in"
    clock.now += 61
    assert await door.viewer(Caller(known)) is not None, "and is asked about again in spite of the guesses"


async def test_sessions_are_bounded_and_end(door, clock):
    first = await door.enter("good-nina")
    for _ in range(SESSIONS):
        last = await door.enter("good-nina")
    assert await door.viewer(Caller(first)) is None
    clock.now += 12 * 3600 + 1
    assert await door.viewer(Caller(last)) is None
    other = await door.enter("good-nina")
    door.leave(other)
    assert await door.viewer(Caller(other)) is None
