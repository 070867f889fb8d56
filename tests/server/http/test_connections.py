"""Plain reviews beside requests of aiohttp's on one connection: each gets its own response, in order."""

import asyncio
import json
import socket
import time

import pytest

from tests.server.support.harness import until
from webhook.server.http.plain_reviews import HOLD_SECONDS

PLAIN = b"POST /%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
BY_AIOHTTP = PLAIN.replace(b"Host: x", b"Host: x\r\nCookie: a=b")


def message(body, *, path=b"mutate", form=PLAIN):
    return form % (path, len(body), body)


async def response(reader):
    """The length that the reviewer saw, and whether aiohttp wrote the response, which names itself."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=20)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nDate: " in head
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return json.loads(await reader.readexactly(size))["length"], b"\r\nServer: " in head


async def test_a_plain_review_is_not_read_by_aiohttp(server):
    reader, writer = await server.connect()
    for form, want in ((PLAIN, False), (BY_AIOHTTP, True), (PLAIN, False)):
        writer.write(message(b"x" * 9_500, form=form))
        assert await response(reader) == (9_500, want)
    assert len(server.lines("decision")) == 3


@pytest.mark.parametrize("size", [0, 7])
async def test_a_review_may_be_split_anywhere(server, size):
    sent = message(b"x" * size)
    for at in range(1, len(sent), 7):
        reader, writer = await server.connect()
        writer.write(sent[:at])
        await asyncio.sleep(0)
        writer.write(sent[at:])
        assert (await response(reader))[0] == size
        writer.transport.abort()
    assert server.lines("request refused") == []


async def test_the_rest_of_a_review_may_come_late(server):
    reader, writer = await server.connect()
    sent = message(b"x" * 9_500)
    writer.write(sent[:4096])
    await asyncio.sleep(2 * HOLD_SECONDS)
    writer.write(sent[4096:])
    assert await response(reader) == (9_500, True)
    writer.write(sent)
    assert await response(reader) == (9_500, False)


@pytest.mark.parametrize("forms", [(PLAIN, PLAIN), (PLAIN, BY_AIOHTTP), (BY_AIOHTTP, PLAIN)], ids=str)
@pytest.mark.parametrize("pause", [0, 0.05])
async def test_requests_that_do_not_wait_for_a_response_are_answered_in_order(server, forms, pause):
    async def work():
        await asyncio.sleep(0.1 if len(server.reviewer.calls) == 1 else 0)

    server.reviewer.work = work
    reader, writer = await server.connect()
    for size in (1, 2, 3):
        writer.write(message(b"x" * size, path=b"validate", form=forms[size % 2]))
        await asyncio.sleep(pause)
    assert [(await response(reader))[0] for _ in range(3)] == [1, 2, 3]


async def test_a_client_that_leaves_while_its_review_waits_is_not_a_bug(server):
    release = asyncio.Event()
    server.reviewer.work = release.wait
    _, writer = await server.connect()
    writer.write(message(b"{}", path=b"validate"))
    await until(lambda: server.reviewer.calls)
    writer.transport.abort()
    await until(server.reviewer.is_gone)
    release.set()
    assert (await server.review("/validate")).status == 200
    assert len(server.lines("decision")) == 2
    assert server.lines("bug") == server.lines("library") == []


async def test_a_client_that_leaves_with_half_a_review_leaves_nothing(server):
    _, writer = await server.connect()
    writer.write(message(b"x" * 9_500)[:4096])
    await asyncio.sleep(HOLD_SECONDS / 5)
    writer.transport.abort()
    await asyncio.sleep(2 * HOLD_SECONDS)
    assert (await server.review()).status == 200
    assert server.reviewer.calls == ["mutate"]
    assert server.lines("bug") == server.lines("library") == []


async def test_a_post_to_another_path_gets_the_error_of_aiohttp(server):
    for path, status in ((b"healthz", 405), (b"nothing", 404)):
        reader, writer = await server.connect()
        writer.write(message(b"{}", path=path))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 %d " % status)


async def test_a_client_that_takes_no_responses_is_not_answered_without_end(server):
    server.reviewer.padding = "x" * 1024**2
    reader, writer = await server.connect()
    writer.transport.pause_reading()
    for size in range(60):
        writer.write(message(b"x" * size))
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    assert 0 < len(server.reviewer.calls) < 30
    writer.transport.resume_reading()
    assert [(await response(reader))[0] for _ in range(60)] == [*range(60)]


def send_beside(server, sent):
    """Send a review that waits, then so many bytes, until the server takes no more for a second."""
    with (
        socket.create_connection(("127.0.0.1", server.port)) as plain,
        server.tls.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.settimeout(1)
        client.sendall(message(b"{}", path=b"validate"))
        while not server.reviewer.calls:
            time.sleep(0.01)
        client.sendall(b"x" * sent)


async def test_what_a_client_sends_beside_a_review_that_waits_is_not_read_without_end(server):
    release = asyncio.Event()
    server.reviewer.work = release.wait
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(send_beside, server, 64 * 1024**2)
    assert server.reviewer.calls == ["validate"]
    release.set()
    assert (await server.review("/validate")).status == 200
