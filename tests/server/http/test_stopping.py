"""How a server stops, renews its certificate, and shares a port: without a failed request."""

import asyncio
import ssl

import pytest

from certs.authority import certificate_to_pem, make_leaf, read_authority, read_ec_key
from certs.serving import Reloaded
from tests.server.support.harness import running, settings_for, until
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.http.app import App, serve
from webhook.server.http.handlers import Readiness
from webhook.server.settings import StartupError

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_draining_is_unready_at_once_still_responds_and_closes_connections(tmp_path):
    async with running(tmp_path, drain_seconds=2) as server:
        idle_reader, idle_writer = await server.connect()
        assert (await server.review()).headers.get("Connection") is None
        server.stop.set()
        await asyncio.sleep(0.05)
        ready = await server.ask("GET", "/readyz")
        assert (ready.status, ready.json["conditions"]["serving"]["ok"]) == (503, False)
        review = await server.review()
        assert (review.status, review.headers["Connection"]) == (200, "close")
        idle_writer.write(HEALTH)
        assert b"connection: close" in (await idle_reader.read()).lower()
        assert not server.serving.done()
        await server.serving
        assert [line["seconds"] for line in server.lines("draining")] == [2]


async def test_a_request_in_flight_finishes(tmp_path):
    async with running(tmp_path) as server:
        release = asyncio.Event()
        server.reviewer.work = release.wait
        asked = asyncio.create_task(server.review("/validate"))
        await until(lambda: server.reviewer.calls)
        server.stop.set()
        await asyncio.sleep(0.1)
        assert not server.serving.done()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", server.port)
        release.set()
        reply = await asked
        assert (reply.status, reply.headers["Connection"]) == (200, "close")
        await server.serving
        assert len(server.lines("decision")) == 1


async def test_idle_connections_do_not_delay_the_shutdown(tmp_path):
    async with running(tmp_path) as server:
        reader, writer = await server.connect()
        writer.write(HEALTH)
        assert await reader.readuntil(b"ok\n")
        server.stop.set()
        async with asyncio.timeout(20):
            await server.serving
            assert await reader.read() == b""


async def certificate_of(server):
    _, writer = await server.connect()
    return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


async def test_a_new_certificate_is_used_for_new_connections_and_old_ones_stay(tmp_path):
    async with running(tmp_path) as server:
        reader, writer = await server.connect()
        old = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        certs = tmp_path / "certs"
        authority = read_authority((certs / "ca.crt").read_bytes(), (certs / "ca.key").read_bytes())
        key = read_ec_key((certs / "tls.key").read_bytes(), name="tls.key")
        leaf = make_leaf(
            authority,
            key=key.public_key(),
            hosts=["127.0.0.1", "localhost", "::1"],
            now=authority.certificate.not_valid_before_utc,
        )
        (certs / "tls.crt").write_bytes(certificate_to_pem(leaf))
        assert await server.reloader.check() == Reloaded(not_after=leaf.not_valid_after_utc, is_renewed=False)
        assert await certificate_of(server) == ssl.PEM_cert_to_DER_cert(certificate_to_pem(leaf).decode()) != old
        writer.write(HEALTH)
        assert await reader.readuntil(b"ok\n")


async def test_a_broken_certificate_on_disk_fails_no_handshake(tmp_path):
    async with running(tmp_path) as server:
        old = await certificate_of(server)
        (tmp_path / "certs" / "tls.crt").write_text("half a certifi")
        await server.reloader.check()
        assert await certificate_of(server) == old


async def test_old_tls_is_refused(server):
    old = ssl.create_default_context(cafile=server.folder / "certs" / "ca.crt")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", server.port, ssl=old)


@pytest.mark.parametrize(
    ("listen", "want"),
    [
        ("127.0.0.1:{port}", r"cannot listen on 127\.0\.0\.1:\d+: another process listens there"),
        ("no.such.host.invalid:{port}", r"cannot listen on no\.such\.host\.invalid:\d+: "),
        ("192.0.2.1:{port}", r"cannot listen on 192\.0\.2\.1:\d+: Cannot assign requested address"),
    ],
)
async def test_an_unavailable_address_is_a_startup_error(server, tmp_path, listen, want):
    logs, readiness = open_logs(LogFormat.JSON), Readiness()
    app = App(server.reviewer, readiness, Metrics(), logs, why_not_synced=lambda: None)
    settings = settings_for(tmp_path, listen=listen.format(port=server.port))
    with pytest.raises(StartupError, match=want):
        await serve(app, settings, server.reloader.context, stop=asyncio.Event())
