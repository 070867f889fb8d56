"""Bounds on connections, counted: no clock but the one that a test sets, and transports that only note what happens."""

import asyncio
from collections import Counter

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.http.connections import Bounds, Connection, Connections

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"


class Transport(asyncio.Transport):
    def __init__(self, protocol):
        super().__init__()
        self.protocol = protocol
        self.is_closed = False

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True
        self.protocol.connection_lost(None)

    abort = close


class Http(asyncio.Protocol):
    """In aiohttp's place: notes what it gets."""

    def __init__(self):
        self.got = b""

    def data_received(self, data):
        self.got += data


class Room(Connections):
    def __init__(self, *, make=Connection, **bounds):
        given_bounds = {"connections": 8, "of_address": 4, "idle_seconds": 300.0} | bounds
        super().__init__(web.Server(None), Bounds(**given_bounds), make=make)
        self.clock = 0.0
        self.now = lambda: self.clock
        self.opened = []
        self.protocols = []

    def http(self):
        self.protocols.append(Http())
        return self.protocols[-1]

    def open(self, address="10.0.0.1", *sent):
        connection = self.admit(address)
        if connection is None:
            return None
        connection.connection_made(Transport(connection))
        self.opened.append(connection)
        for data in sent:
            self.send(connection, data)
        return connection

    def send(self, connection, data):
        if not connection.is_closing:
            connection.data_received(data)

    def at(self, seconds):
        self.clock = seconds
        self.sweep(seconds)

    @property
    def there(self):
        return [each for each in self.opened if is_open(each)]

    @property
    def number(self):
        return len(self)


@pytest.fixture
async def room():
    made = Room()
    yield made
    await made.close(within_seconds=0.01, gone_seconds=0.01)


def is_open(connection):
    return connection is not None and not connection.is_closing


async def test_a_newcomer_takes_the_place_of_the_longest_silent_of_its_address(room):
    made = []
    for second in range(4):
        room.clock = second
        made.append(room.open())
    room.send(made[0], GET)
    made[0].answered()
    assert is_open(room.open())
    assert [is_open(each) for each in made] == [True, False, True, True]
    assert room.number == 4


async def test_a_connection_that_begins_to_ask_is_silent_from_then_on(room):
    made = [room.open(f"10.0.0.{number}") for number in range(8)]
    room.clock = 1
    room.send(made[0], GET[:-2])
    assert is_open(room.open("10.0.0.99"))
    assert [is_open(each) for each in made] == [True, False] + [True] * 6


async def test_a_newcomer_takes_the_place_of_the_longest_silent_of_all(room):
    made = [room.open(f"10.0.0.{number}") for number in range(8)]
    probe = room.open("10.0.0.99", GET)
    assert is_open(probe)
    assert [is_open(each) for each in made] == [False] + [True] * 7


@pytest.mark.parametrize("sent", [b"", GET[:-2], POST[:-1]], ids=["nothing", "half a head", "half a body"])
async def test_what_never_asked_in_full_makes_room_before_what_did(room, sent):
    asked = [room.open(f"10.0.0.{number}", GET) for number in range(4)]
    for each in asked:
        each.answered()
    room.clock = 5
    others = [room.open(f"10.0.1.{number}", *([sent] if sent else [])) for number in range(4)]
    for number in range(4):
        assert is_open(room.open(f"10.0.2.{number}"))
    if sent != POST[:-1]:  # whose head was a request that has an answer coming
        assert all(map(is_open, asked))
        assert not any(map(is_open, others))
    assert room.number == 8


async def test_a_request_that_waits_for_its_answer_is_never_closed_for_another_one(room):
    waiting = [room.open(f"10.0.0.{number}", GET) for number in range(8)]
    assert not is_open(room.open("10.0.0.99"))
    assert all(map(is_open, waiting))
    waiting[3].pause_writing()  # its client does not take the answer
    assert is_open(room.open("10.0.0.99"))
    assert [is_open(each) for each in waiting] == [True] * 3 + [False] + [True] * 4


async def test_an_address_takes_no_place_of_one_that_holds_fewer(room):
    many = [room.open("10.6.6.6", GET) for _ in range(4)]
    few = [room.open(f"10.0.0.{number}") for number in range(4)]
    assert not is_open(room.open("10.6.6.6"))
    assert all(map(is_open, [*many, *few]))


async def test_a_crowd_of_new_ones_costs_no_look_at_all_others():
    looks = []

    class Looked(Connection):
        @property
        def is_silent(self):
            looks.append(self)
            return super().is_silent

    room = Room(make=Looked, connections=500)
    for number in range(250):
        room.open(f"10.0.0.{number}", GET).answered()
    for number in range(750):
        assert is_open(room.open(f"10.1.{number // 250}.{number % 250}"))
    assert room.number == 500
    assert len(looks) == 500
    await room.close(within_seconds=0.01, gone_seconds=0.01)


def rank_of_last(room, address):
    """Of the connection, if any, that makes room for a new one from an address: whether it asked, and since when."""
    own = sum(each.remote == address for each in room.there) + 1
    others = Counter(each.remote for each in room.there)
    if own > room.bounds.of_address:
        may_go = [each for each in room.there if each.remote == address]
    elif len(room.there) == room.bounds.connections:
        may_go = [each for each in room.there if others[each.remote] + (each.remote == address) >= own]
    else:
        return []
    return sorted((each.has_asked, each.since) for each in may_go if each.is_silent)[:1]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([b"", GET, GET[:9], POST[:-1], b"\x00"]), st.booleans()),
        max_size=60,
    )
)
@examples(100)
def test_there_are_never_more_than_the_bounds_and_an_address_that_holds_none_gets_in(steps):
    async def play():
        room = Room(connections=6, of_address=3)
        for number, (address, sent, is_answered) in enumerate(steps):
            room.clock = number
            rank = rank_of_last(room, f"10.0.0.{address}")
            before = set(room.there)
            connection = room.open(f"10.0.0.{address}")
            assert [(each.has_asked, each.since) for each in before - set(room.there)] == rank
            if sent and connection is not None:
                room.send(connection, sent)
            if is_answered and connection is not None and connection.unanswered:
                connection.answered()
            assert room.number <= 6
            by_address = [sum(each.remote == f"10.0.0.{a}" for each in room.there) for a in range(4)]
            assert max(by_address) <= 3
        waiting = [each for each in room.there if not each.is_silent]
        probe = room.open("10.9.9.9")
        assert is_open(probe) or len(waiting) == 6
        assert all(map(is_open, waiting))
        await room.close(within_seconds=0.001, gone_seconds=0.001)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("sent", "ends"),
    [
        pytest.param([], 300, id="nothing"),
        pytest.param([GET[:-2]], 10, id="half a head"),
        pytest.param([b"\r\n"], 10, id="line feeds"),
        pytest.param([POST[:-1]], 30, id="half a body"),
        pytest.param([b"\x00"], 30, id="no HTTP"),
    ],
)
async def test_a_client_has_so_many_seconds(room, sent, ends):
    connection = room.open("10.0.0.1", *sent)
    room.at(ends)
    assert is_open(connection)
    room.at(ends + 1)
    assert not is_open(connection)


async def test_a_byte_more_gives_no_more_time(room):
    connection = room.open("10.0.0.1", GET[:5])
    for second in range(1, 10):
        room.at(second)
        room.send(connection, b"x")
    room.at(11)
    assert not is_open(connection)


async def test_an_answer_may_take_as_long_as_its_server_lets_it(room):
    connection = room.open("10.0.0.1", GET)
    room.at(100_000)
    assert is_open(connection)
    connection.answered()
    room.at(100_300)
    assert is_open(connection)
    room.at(100_301)
    assert not is_open(connection)


async def test_a_client_that_takes_nothing_is_closed(room):
    connection = room.open("10.0.0.1", GET)
    connection.pause_writing()
    room.at(29)
    connection.resume_writing()
    room.at(100)
    assert is_open(connection)
    connection.pause_writing()
    room.at(131)
    assert not is_open(connection)


async def test_a_head_has_so_many_bytes():
    room = Room(head_bytes=1000)
    connection = room.open("10.0.0.1", GET[:-2])
    room.send(connection, b"X-A: " + b"a" * 500)
    assert is_open(connection)
    room.send(connection, b"a" * 500)
    assert not is_open(connection)
    await room.close(within_seconds=0.01, gone_seconds=0.01)


async def test_requests_that_come_before_an_answer_wait_for_it(room):
    connection = room.open("10.0.0.1", GET + GET[:-2])
    room.at(60)
    assert is_open(connection)
    connection.answered()  # from here on the client has to send the rest of its head
    room.at(71)
    assert not is_open(connection)


async def test_a_silent_connection_costs_no_protocol_of_aiohttp(room):
    connection = room.open()
    assert not room.protocols
    room.send(connection, GET)
    assert [each.got for each in room.protocols] == [GET]
