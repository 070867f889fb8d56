"""Connections count before their TLS handshake: real sockets, and counts of what is open."""

import asyncio
import gc
import itertools
import logging
import socket
import ssl
import struct
from contextlib import ExitStack, asynccontextmanager
from errno import EMFILE, EPROTO
from pathlib import Path

import pytest
from aiohttp import web

from certs.serving import CertFolder, Reloader
from tests.server.support.harness import until
from webhook.http import server
from webhook.http import server as acceptor
from webhook.http.connections import Bounds, Connections
from webhook.http.server import ACCEPTS, RETRY_SECONDS, listening, open_sockets, server_of

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
SILENT_OR_BEGUN = pytest.mark.parametrize("has_begun", [False, True], ids=["silent", "begun"])


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    return Reloader(CertFolder(folder)).context, ssl.create_default_context(cafile=folder / "ca.crt")


@pytest.fixture(params=["TLS", "plain"])
def tls(request, certs):
    """The contexts of server and client."""
    return certs if request.param == "TLS" else (None, None)


@pytest.fixture(autouse=True)
def no_end_waits_for_a_client(monkeypatch):
    """What the end does not close by itself hangs these tests."""
    monkeypatch.setattr(server, "TLS_SHUTDOWN_SECONDS", 1_000.0)


@pytest.fixture(autouse=True)
async def nothing_is_left_or_logged(caplog):
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
    gc.freeze()  # what there is already: to look through that takes a third of a second
    yield
    gc.collect()  # an exception that was not retrieved is reported then
    assert problems == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.fixture
def connect():
    """Makes clients that send nothing, or no more than this, or begin what a client has to send first."""
    with ExitStack() as stack:

        def make(server, *, address="127.0.0.1", sent=b"", has_begun=False):
            made = socket.create_connection(("127.0.0.1", server.port), source_address=(address, 0))
            stack.callback(made.close)
            made.sendall(server.beginning if has_begun else sent)
            return made

        yield make


class Server:
    def __init__(self, connections, sockets, client):
        self.connections = connections
        self.port = sockets[0].getsockname()[1]
        self.client = client
        self.beginning = GET[:-9] if client is None else HALF_A_HELLO

    @property
    def number(self):
        return len(self.connections)

    async def ask(self, host="127.0.0.1"):
        name = None if self.client is None else "localhost"
        reader, writer = await asyncio.open_connection(host, self.port, ssl=self.client, server_hostname=name)
        writer.write(GET)
        answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def serving(tls, *, host="127.0.0.1", sockets=None, **bounds):
    async def handle(_request):
        return web.Response(text="ok")

    wanted = {"connections": 8, "of_address": 8, "idle_seconds": 300.0} | bounds
    connections = Connections(server_of(handle), Bounds(**wanted))
    sockets = open_sockets(host, 0) if sockets is None else sockets
    async with listening(connections, sockets, tls=tls[0], finish_seconds=5):
        yield Server(connections, sockets, tls[1])


async def is_ended(client):
    """Whether the server closes the connection."""
    client.setblocking(False)
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 20) == b""
    except ConnectionError:
        return True


def is_open(client):
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def turns(number=10):
    for _ in range(number):
        await asyncio.sleep(0)


@SILENT_OR_BEGUN
async def test_a_connection_counts_before_it_sends_anything(tls, has_begun, connect):
    async with serving(tls) as server:
        made = [connect(server, has_begun=has_begun) for _ in range(3)]
        await until(lambda: server.number == 3)
        made[1].close()
        await until(lambda: server.number == 2)


@SILENT_OR_BEGUN
async def test_a_newcomer_takes_the_place_of_the_longest_silent_of_all(tls, has_begun, connect):
    async with serving(tls) as server:
        made = []
        for number in range(8):
            made.append(connect(server, address=f"127.0.0.{number + 2}", has_begun=has_begun))
            await until(lambda: server.number == len(made))
        for number in range(8):
            assert (await server.ask()).endswith(b"ok")
            assert await is_ended(made[number])
            assert server.number <= 8
            made.append(connect(server, address=f"127.0.1.{number + 2}", has_begun=has_begun))
            await until(lambda: server.number == 8)
        assert all(map(is_open, made[8:]))


async def test_a_newcomer_takes_the_place_of_the_longest_silent_of_its_address(tls, connect):
    async with serving(tls, of_address=3) as server:
        other = connect(server, address="127.0.0.9")
        await until(lambda: server.number == 1)
        made = []
        for number in range(3):
            made.append(connect(server))
            await until(lambda number=number: server.number == number + 2)
        assert (await server.ask()).endswith(b"ok")
        assert await is_ended(made[0])
        assert all(map(is_open, [other, *made[1:]]))


async def test_a_thousand_connections_never_exceed_the_bound_and_requests_get_through(tls, connect):
    async with serving(tls) as server:
        for number in range(1_000):
            connect(server, address=f"127.0.{number // 250}.{number % 250 + 2}", has_begun=number % 2)
            if number % 50 == 0:
                assert (await server.ask()).endswith(b"ok")
            assert server.number <= 8


async def test_requests_right_after_the_handshake_lose_no_byte(tls):
    async with serving(tls, connections=100, of_address=100) as server:
        for _ in range(3):
            answers = await asyncio.gather(*(server.ask() for _ in range(40)))
            assert all(each.endswith(b"ok") for each in answers)
        await until(lambda: server.number == 0)


async def test_clients_that_reset_their_handshake_are_forgotten(tls, connect):
    async with serving(tls, connections=100, of_address=100) as server:
        for number in range(40):
            client = connect(server, has_begun=number % 2)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await turns(number % 5)
            client.close()
        await until(lambda: server.number == 0)
        assert (await server.ask()).endswith(b"ok")


async def test_a_client_that_speaks_no_tls_is_closed(certs, connect):
    async with serving(certs) as server:
        assert await is_ended_after_all(connect(server, sent=GET))
        await until(lambda: server.number == 0)


async def is_ended_after_all(client):
    """Whether the server closes the connection, possibly after an alert."""
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        while await asyncio.wait_for(loop.sock_recv(client, 64), 20):
            pass
    except ConnectionError:
        pass
    return True


async def test_a_handshake_has_a_timeout(certs, monkeypatch, connect):
    monkeypatch.setattr(acceptor, "HANDSHAKE_SECONDS", 0.05)
    async with serving(certs) as server:
        made = [connect(server, sent=sent) for sent in (b"", HALF_A_HELLO)]
        for each in made:
            assert await is_ended(each)
        await until(lambda: server.number == 0)


async def test_the_end_closes_connections_in_their_handshake(tls, connect):
    async with serving(tls) as server:
        made = [connect(server, has_begun=number % 2) for number in range(4)]
        await until(lambda: server.number == 4)
    assert server.number == 0
    for each in made:
        assert await is_ended(each)
    with pytest.raises(ConnectionError):
        await server.ask()


async def test_the_end_may_come_in_any_turn_of_a_handshake(tls, connect):
    for number in range(12):
        async with serving(tls) as server:
            made = [connect(server, address=f"127.0.0.{each}", has_begun=True) for each in (2, 3)]
            asking = asyncio.create_task(server.ask())
            await turns(number)
        assert server.number == 0
        await asyncio.wait([asking])
        assert asking.exception() is None or isinstance(asking.exception(), OSError)
        for each in made:
            assert await is_ended(each)


async def test_a_process_that_cancels_its_tasks_keeps_no_connection(tls, connect):
    async with serving(tls) as server:
        for number in range(8):
            client = connect(server)
            await turns(number)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            client.close()
            await until(lambda: server.number == 0)
        assert (await server.ask()).endswith(b"ok")


async def test_connections_that_replace_each_other_in_one_turn_leave_no_file_open(tls, connect):
    async with serving(tls, connections=2, of_address=2) as server:
        assert (await server.ask()).endswith(b"ok")
        await until(lambda: server.number == 0)
        await turns()
        before = open_files()
        made = [connect(server) for _ in range(100)]
        await until(lambda: server.number == 2)
        assert (await server.ask()).endswith(b"ok")
        for each in made:
            each.close()
        await until(lambda: server.number == 0)
        await turns()
        assert open_files() == before


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


class Listener(socket.socket):
    """A listening socket that fails as often as it is asked to, and counts."""

    def __init__(self, errors=()):
        (real,) = open_sockets("127.0.0.1", 0)
        super().__init__(fileno=real.detach())
        self.setblocking(False)
        self.errors = list(errors)
        self.calls = 0

    def accept(self):
        self.calls += 1
        if self.errors:
            raise OSError(self.errors.pop(0), "failed")
        return super().accept()


async def test_without_a_file_the_longest_silent_is_closed_and_accepting_does_not_spin(tls, caplog, connect):
    listener = Listener()
    async with serving(tls, sockets=[listener]) as server:
        made = []
        for number in range(4):
            made.append(connect(server))
            await until(lambda number=number: server.number == number + 1)
        listener.errors, listener.calls = [EMFILE] * 2, 0
        assert (await server.ask()).endswith(b"ok")
        assert await is_ended(made[0])
        assert await is_ended(made[1])
        assert is_open(made[2])
        assert listener.calls <= 6  # two failures, then the client, and a look whether there is another one each time
        (line,) = (each.getMessage() for each in caplog.records if "no file" in each.getMessage())
        assert line == "no file for a new connection (failed): the longest silent is closed"


async def test_the_end_may_come_while_accepting_pauses(tls, connect):
    listener = Listener([EMFILE] * 1_000)
    async with serving(tls, sockets=[listener]) as server:
        client = connect(server)
        await until(lambda: listener.calls == 2)
    await asyncio.sleep(2 * RETRY_SECONDS)  # a timer after that of the pause
    assert await is_ended(client)


async def test_an_error_of_one_connection_stops_no_other(tls):
    listener = Listener([EPROTO] * 3)
    async with serving(tls, sockets=[listener]) as server:
        assert (await server.ask()).endswith(b"ok")


async def test_a_turn_of_the_event_loop_accepts_so_many(tls):
    listener, each_turn = Listener(), []
    loop = asyncio.get_running_loop()

    def tick():
        each_turn.append(listener.calls)
        if len(each_turn) < 2_000:
            loop.call_soon(tick)

    with ExitStack() as stack:
        for _ in range(3 * ACCEPTS):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        async with serving(tls, sockets=[listener], connections=100, of_address=100) as server:
            tick()
            await until(lambda: server.number == 3 * ACCEPTS)
    assert max(after - before for before, after in itertools.pairwise(each_turn)) == ACCEPTS


async def test_both_families_are_accepted(tls):
    async with serving(tls, host="localhost") as server:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            if family in {each[0] for each in socket.getaddrinfo("localhost", 0)}:
                assert (await server.ask(host)).endswith(b"ok")


async def test_an_exception_that_is_a_bug_is_reported(connect):
    """Not kept silent as what clients do is."""
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context["exception"]))
    async with serving(("no context", None)) as server:
        assert await is_ended(connect(server))
        await until(lambda: server.number == 0)
    gc.collect()
    assert len(problems) == 1
