"""One request to a real HTTPS server: what is sent, and whatever the server does with it."""

import asyncio
import logging

import pytest

from tests.addons.messages.receiver import folder_of, receiving, status
from tests.cluster.support.pki import Authority
from webhook.addons.messages.delivery import SECONDS, Delivery, DeliveryError
from webhook.core.model.policy_addons import NotifyTarget, SecretHeader

TOKEN = "xoxb-very-secret"
BEARER = SecretHeader("Authorization", "token", "Bearer ")


def target(receiver, **more):
    return NotifyTarget("t", **{"url": receiver.url, "ca_file": "ca.crt"} | more)


@pytest.fixture
def secrets(tmp_path, authority):
    return folder_of(tmp_path / "secrets", authority, token=f"{TOKEN}\n")


@pytest.fixture
def delivery(secrets):
    return Delivery(secrets)


async def failure(delivery, found, body=b"{}"):
    with pytest.raises(DeliveryError) as caught:
        await delivery.send(found, body)
    return caught.value


async def test_a_message_is_a_post_of_json_with_the_token(delivery, authority):
    async with receiving(authority) as receiver:
        await delivery.send(target(receiver, header=BEARER), b'{"a": 1}')
        await delivery.send(target(receiver, header=SecretHeader("X-Key", "token")), b"{}")
    first, second = receiver.got
    assert first.line == "POST /hook HTTP/1.1"
    assert first.message == {"a": 1}
    assert first.headers["content-type"] == "application/json"
    assert first.headers["authorization"] == f"Bearer {TOKEN}"
    assert first.headers["user-agent"].startswith("fairgate/")
    assert second.headers["x-key"] == TOKEN
    assert "authorization" not in second.headers


async def test_a_rotated_secret_is_used_at_once(delivery, secrets, authority):
    async with receiving(authority) as receiver:
        for token in ("old", "new"):
            (secrets / "token").write_text(token)
            await delivery.send(target(receiver, header=BEARER), b"{}")
    assert [each.headers["authorization"] for each in receiver.got] == ["Bearer old", "Bearer new"]


async def test_the_address_may_be_a_secret(delivery, secrets, authority):
    async with receiving(authority) as receiver:
        (secrets / "url").write_text(f"{receiver.url}/T000/B000/{TOKEN}\n")
        await delivery.send(target(receiver, url="", url_file="url"), b"{}")
    assert receiver.got[0].line == f"POST /hook/T000/B000/{TOKEN} HTTP/1.1"


async def test_a_rotated_ca_is_trusted_at_once(delivery, secrets, tmp_path):
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    async with receiving(other) as receiver:
        assert str(await failure(delivery, target(receiver))).startswith("its certificate is not trusted: ")
        folder_of(secrets, other)
        await delivery.send(target(receiver), b"{}")
    assert len(receiver.got) == 1


async def test_without_a_ca_file_only_the_systems_cas_are_trusted(delivery, authority):
    async with receiving(authority) as receiver:
        assert "not trusted" in str(await failure(delivery, target(receiver, ca_file="")))
        assert await delivery.why_unreachable(target(receiver, ca_file="")) is not None
    assert receiver.got == []


async def test_a_certificate_of_another_host_is_not_trusted(delivery, authority):
    async with receiving(authority) as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        assert "not trusted" in str(await failure(delivery, target(receiver, url=url)))
    assert receiver.got == []


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(delivery, authority, code):
    async with receiving(authority) as other, receiving(authority, status(code, f"Location: {other.url}")) as receiver:
        error = await failure(delivery, target(receiver, header=BEARER))
    assert str(error) == f"HTTP {code}: redirects are not followed"
    assert (len(receiver.got), other.connections) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (status(500), ("HTTP 500", False, 0)),
        (status(503, "Retry-After: 7"), ("HTTP 503", False, 7)),
        (status(429, "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"), ("HTTP 429", False, 0)),
        (status(429, "Retry-After: 99999999999999999999"), ("HTTP 429", False, 999_999)),
        (status(401), ("HTTP 401", False, 0)),
        (status(400), ("HTTP 400", True, 0)),
        (status(422), ("HTTP 422", True, 0)),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ("no valid HTTP answer", False, 0)),
        (b"", ("it closed the connection without an answer", False, 0)),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", ("no valid HTTP answer", False, 0)),
    ],
    ids=[
        "500",
        "retry later",
        "retry at a date",
        "retry in ages",
        "401",
        "400",
        "422",
        "no HTTP",
        "nothing",
        "headers",
    ],
)
async def test_what_else_is_answered(delivery, authority, answer, want):
    async with receiving(authority, answer) as receiver:
        error = await failure(delivery, target(receiver))
    assert (str(error), error.is_hopeless, error.retry_after) == want


async def test_a_receiver_that_hangs_or_answers_without_end(delivery, authority):
    async def hang(_writer):
        await asyncio.sleep(3600)

    async def drip(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: y\r\n")
            await writer.drain()
            await asyncio.sleep(1)

    async def flood(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100_000):
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()

    clock = asyncio.get_running_loop().time
    for answer in (hang, drip):
        async with receiving(authority, answer) as receiver:
            began = clock()
            assert str(await failure(delivery, target(receiver))) == f"no answer within {SECONDS:g} s"
            assert clock() - began < SECONDS + 1
    async with receiving(authority, flood) as receiver:
        await delivery.send(target(receiver), b"{}")  # the head is a success, and nothing else is read


async def test_a_server_that_accepts_and_says_nothing_in_tls(delivery):
    async def silent(_reader, writer):
        await asyncio.sleep(100)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = NotifyTarget("t", url=f"https://127.0.0.1:{port}/", ca_file="ca.crt")
    assert str(await failure(delivery, found)) == f"no answer within {SECONDS:g} s"
    assert await delivery.why_unreachable(found) == f"no answer within {SECONDS:g} s"
    server.close()
    await asyncio.sleep(100)


async def test_a_closed_port_and_a_name_that_does_not_exist(delivery, authority):
    async with receiving(authority) as receiver:
        closed = target(receiver)
    assert str(await failure(delivery, closed)) == "no connection: Connection refused"
    assert "onnection refused" in await delivery.why_unreachable(closed)
    no_name = target(receiver, url="https://no-such-host.invalid/")
    assert str(await failure(delivery, no_name)) == "its name cannot be resolved"


async def test_a_target_is_reached_by_a_connection_that_sends_nothing(delivery, authority):
    async with receiving(authority) as receiver:
        assert await delivery.why_unreachable(target(receiver, header=BEARER)) is None
        await asyncio.sleep(1)
    assert (receiver.connections, receiver.got) == (1, [])


async def test_plain_http_is_for_messages_without_secrets(delivery, secrets):
    async with receiving(None) as receiver:
        plain = target(receiver, ca_file="")
        await delivery.send(plain, b"{}")
        assert await delivery.why_unreachable(plain) is None
        (secrets / "url").write_text(receiver.url)
        error = await failure(delivery, target(receiver, url="", url_file="url", header=BEARER, ca_file=""))
    assert str(error) == "file url: an http address, which would send a secret in clear text"
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("files", "more", "text"),
    [
        ({"url": "nonsense"}, {"url": "", "url_file": "url"}, "file url: expected a URL such as https://"),
        ({"url": "https://u:p@h/"}, {"url": "", "url_file": "url"}, "file url: a user or password"),
        ({"url": f"https://h/{TOKEN}#x"}, {"url": "", "url_file": "url"}, "file url: a URL to send to has no fragment"),
        ({"ca.crt": "no PEM"}, {}, "file ca.crt: no readable CA (PEM)"),
        ({"ca.crt": "\xe9"}, {}, "file ca.crt: no readable CA (PEM)"),
        ({}, {"ca_file": "missing"}, "file missing of the folder of secrets: No such file"),
        ({"token": f"{TOKEN}\n{TOKEN}"}, {"header": BEARER}, "file token of the folder of secrets: expected one line"),
    ],
)
async def test_files_that_cannot_be_used_are_named_and_never_shown(secrets, authority, files, more, text):
    delivery = Delivery(secrets)
    for name, content in files.items():
        (secrets / name).write_text(content)
    async with receiving(authority) as receiver:
        error = await failure(delivery, target(receiver, **more))
        assert await delivery.why_unreachable(target(receiver, **more)) == str(error)
    assert str(error).startswith(text)
    assert TOKEN not in repr(error)
    assert receiver.connections == 0


async def test_no_failure_shows_the_address_or_the_secret(delivery, secrets, authority, caplog):
    """Receivers answer with what they got, and libraries put addresses into their errors."""
    caplog.set_level(logging.DEBUG)
    answers = [status(500, f"X: {TOKEN}"), status(302, f"Location: https://h/{TOKEN}"), TOKEN.encode(), b""]
    shown = []
    for answer in answers:
        async with receiving(authority, answer) as receiver:
            (secrets / "url").write_text(f"{receiver.url}/{TOKEN}")
            found = target(receiver, url="", url_file="url", header=BEARER)
            shown.append(await failure(delivery, found))
    shown.append(await failure(delivery, found))
    assert len(shown) == 5
    for error in shown:
        assert (
            TOKEN not in f"{error!r} {error.__cause__!r} {error.__context__ if not error.__suppress_context__ else ''}"
        )
    assert TOKEN not in caplog.text
