"""Reviews with a client CA: over real TLS, with and without certificates."""

import ssl

import aiohttp
import pytest

from tests.control_plane.pki import CLIENT_AUTH, SERVER_AUTH, make_authority
from tests.server.support.harness import REVIEW_HEADERS, running
from webhook.server.http.replies import request_certificates
from webhook.server.settings import StartupError


@pytest.fixture
def authority():
    return make_authority("callers")


@pytest.fixture
async def server(tmp_path, authority):
    (tmp_path / "callers.crt").write_bytes(authority.pem)
    async with running(tmp_path, client_ca=tmp_path / "callers.crt") as server:
        yield server


def context_of(server, pair):
    context = ssl.create_default_context(cafile=server.folder / "certs" / "ca.crt")
    (server.folder / "client.pem").write_bytes(pair.certificate + pair.key)
    context.load_cert_chain(server.folder / "client.pem")
    return context


async def review(server, pair):
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context_of(server, pair))) as session,
        session.post(f"{server.url}/validate", data=b"{}", headers=REVIEW_HEADERS) as response,
    ):
        return response.status


async def test_a_client_with_a_certificate_of_the_ca_may_send_reviews(server, authority):
    assert await review(server, authority.issue("kube-apiserver", usage=CLIENT_AUTH)) == 200


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/validate?timeout=5s"])
async def test_without_a_certificate_reviews_are_rejected(server, path):
    reply = await server.review(path)
    assert (reply.status, reply.json["code"]) == (403, "CertificateRequired")
    assert server.reviewer.calls == []


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_and_metrics_need_none(server, path):
    assert (await server.ask("GET", path)).status in (200, 503)


async def test_a_certificate_of_another_ca_fails_the_handshake(server):
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await review(server, make_authority("other").issue("kube-apiserver", usage=CLIENT_AUTH))
    assert server.reviewer.calls == []


async def test_a_serving_certificate_is_not_a_client_certificate(server, authority):
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await review(server, authority.issue("kubelet", usage=SERVER_AUTH))
    assert server.reviewer.calls == []


@pytest.mark.parametrize(("text", "want"), [(None, "No such file"), ("", "no PEM"), ("x", "no PEM")])
def test_a_file_without_a_ca_is_a_startup_error(tmp_path, text, want):
    path = tmp_path / "callers.crt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StartupError, match=rf"client CA .*callers.crt cannot be used: {want}"):
        request_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), path)
