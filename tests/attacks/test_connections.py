"""Limits on connections: headers, bodies and their number are bounded, and small requests have priority."""

import asyncio
import socket
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from tests.attacks.crowd import memory_mib
from tests.server.support.harness import running, until
from webhook.kube.objects import bounds
from webhook.server.http import handlers
from webhook.server.settings import BOUNDS, MAX_BODY_BYTES

pytestmark = pytest.mark.slow

HEAD = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def post(body, *, length=None):
    return HEAD + f"Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


@asynccontextmanager
async def held(server, number, data):
    """So many connections that each send this and then wait."""
    made = [await server.connect() for _ in range(number)]
    for _, writer in made:
        writer.write(data)
        await writer.drain()
    yield made


async def test_an_incomplete_header_closes_the_connection(tmp_path):
    async with running(tmp_path, bounds=replace(BOUNDS, head_seconds=0.2)) as server, held(server, 3, HEAD) as made:
        for reader, _ in made:
            assert await asyncio.wait_for(reader.read(), 60) == b""


async def test_a_header_sent_byte_by_byte_closes_the_connection(tmp_path):
    async with running(tmp_path, bounds=replace(BOUNDS, head_seconds=0.5)) as server:
        reader, writer = await server.connect()
        writer.write(HEAD + b"X-Slow: ")
        ends = asyncio.get_running_loop().time() + 60
        answer = b""
        while not reader.at_eof() and asyncio.get_running_loop().time() < ends:
            writer.write(b"a")
            with suppress(TimeoutError, ConnectionError):
                answer += await asyncio.wait_for(reader.read(1), 0.05)
        assert reader.at_eof()
        assert answer == b""


async def test_an_idle_connection_is_not_a_slow_header(tmp_path):
    async with running(tmp_path, bounds=replace(BOUNDS, head_seconds=0.1)) as server:
        reader, writer = await server.connect()
        for _ in range(2):
            await asyncio.sleep(0.3)
            writer.write(post(b"{}"))
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")


async def test_connections_of_one_address_are_limited_and_a_new_one_takes_the_place_of_a_silent_one(tmp_path):
    bounds = replace(BOUNDS, of_address=3)
    async with running(tmp_path, bounds=bounds) as server, held(server, 3, b"") as made:
        server.reviewer.work = (release := asyncio.Event()).wait
        for _, writer in made[1:]:
            writer.write(post(b"{}").replace(b"/mutate", b"/validate"))
        await until(lambda: len(server.reviewer.calls) == 2)
        reader, writer = await server.connect()
        assert await asyncio.wait_for(made[0][0].read(), 60) == b""
        writer.write(post(b"{}").replace(b"/mutate", b"/validate"))
        await until(lambda: len(server.reviewer.calls) == 3)
        with pytest.raises(ConnectionError):  # the three others wait for answers, which no newcomer takes from them
            await server.connect()
        release.set()
        for answered in (made[1][0], made[2][0], reader):
            assert (await answered.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert (await server.review("/validate")).status == 200


async def test_clients_that_begin_no_handshake_keep_no_other_out(tmp_path):
    bounds = replace(BOUNDS, connections=3)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    async with running(tmp_path, bounds=bounds) as server:
        made = []
        for number in range(30):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, local_addr=(f"127.0.0.{number + 2}", 0)
            )
            writer.write(hello[: number % len(hello)])
            server.open_writers.append(writer)
            made.append(reader)
        for reader in made[:-3]:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
        for _ in range(5):
            assert (await server.review()).status == 200
        assert server.lines("bug") == server.lines("library") == []


async def test_incomplete_bodies_use_little_memory_and_block_no_other(tmp_path):
    body = bytes(MAX_BODY_BYTES - 1)
    async with running(tmp_path) as server:
        await server.review()
        before = memory_mib()
        senders = [threading.Thread(target=_send_slowly, args=(server, body)) for _ in range(24)]
        for each in senders:
            each.start()
        while any(each.is_alive() for each in senders):
            assert (await server.review()).status == 200
            assert memory_mib() - before < 100


def _send_slowly(server, body):
    """Send all but the last byte of a body, as far as the server takes it within a second."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=1) as plain,
        server.tls.wrap_socket(plain, server_hostname="localhost") as secure,
        suppress(OSError),
    ):
        secure.sendall(post(b"", length=MAX_BODY_BYTES))
        secure.sendall(body)
        secure.recv(1)


async def test_large_bodies_over_the_memory_limit_get_a_503(tmp_path, monkeypatch):
    monkeypatch.setattr(handlers, "MAX_BODIES_BYTES", 1024 * 1024)
    async with running(tmp_path) as server, held(server, 1, post(b" ", length=1024 * 1024)):
        await asyncio.sleep(0.1)
        reply = await server.review("/mutate?timeout=1s", data=b" " * 1024 * 512)
        assert (reply.status, reply.json["code"], reply.headers["Retry-After"]) == (503, "TooManyBodies", "1")
        assert (await server.review()).status == 200


@pytest.mark.parametrize("size", [handlers.SMALL_BYTES + 1, bounds.LARGE_BYTES])
async def test_small_reviews_are_processed_between_two_large_ones(tmp_path, size):
    async with running(tmp_path) as server:
        order = []
        server.reviewer.work = lambda: time.sleep(0.005)
        large = [asyncio.create_task(_review(server, b" " * size, "large", order)) for _ in range(30)]
        small = [asyncio.create_task(_review(server, b"{}", "small", order)) for _ in range(10)]
        await asyncio.gather(*large, *small)
        assert order.index("large") < len(order) - 1
        assert order[25:].count("small") == 0


@pytest.mark.parametrize("path", ["/workloads", "/jobs", "/gangs"])
async def test_pods_are_processed_between_two_objects_however_small(tmp_path, path):
    async with running(tmp_path) as server:
        order = []
        server.reviewer.work = lambda: time.sleep(0.005)
        objects = [asyncio.create_task(_review(server, b"{}", "object", order, path=path)) for _ in range(30)]
        pods = [asyncio.create_task(_review(server, b"{}", "pod", order)) for _ in range(10)]
        await asyncio.gather(*objects, *pods)
        assert order[25:].count("pod") == 0


async def _review(server, body, name, order, *, path="/mutate"):
    assert (await server.review(path, data=body)).status == 200
    order.append(name)
