"""A server's certificates from a Secret: probes, metrics and log lines."""

import asyncio
import os
import ssl
from base64 import b64decode
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from certs.manager import BundleChanged, CaBundlesPublished, CaBundlesUnpublished
from certs.rotation import Change
from certs.serving import Reloaded, ReloadFailed
from tests.certs.make import START
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.control_plane.pki import make_authority
from tests.server.support.harness import read_log, settings_for, until
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.certificates import CertificateStatus, open_certificates, report
from webhook.server.http.handlers import Readiness
from webhook.server.settings import CertSecret, LiveCluster, StartupError


@pytest.fixture
def watchers(tmp_path):
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield CertificateStatus(Readiness(), Metrics(), open_logs(LogFormat.JSON, fd=fd))
    os.close(fd)


def settings_of(tmp_path, server):
    live = LiveCluster(write_kubeconfig(tmp_path / "kubeconfig", server))
    return replace(settings_for(tmp_path), certs=CertSecret("certs"), world=live)


@asynccontextmanager
async def opened(settings, watchers):
    async with AsyncExitStack() as stack:
        certificates = await open_certificates(settings, stack, watchers)
        keeping = asyncio.create_task(certificates.renew())
        yield certificates
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def handshake(context, ca_pem):
    """Shake hands as a caller that trusts this CA and calls localhost."""
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    tls = ssl.create_default_context(cadata=ca_pem)
    try:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost")
        writer.close()
    finally:
        server.close()


def condition(watchers):
    return watchers.readiness.conditions()["certificate"]


async def test_a_secret_serves_and_its_ca_is_in_the_metrics(tmp_path, watchers):
    async with FakeApi().serving() as api, opened(settings_of(tmp_path, api.url), watchers) as certificates:
        [(name, secret)] = api.objects["/api/v1/secrets"].items()
        assert name == "default/certs", "the kubeconfig names no namespace"
        await handshake(certificates.context, b64decode(secret["data"]["ca.crt"]).decode())
        assert condition(watchers).ok
        assert "there is no mutatingwebhookconfigurations/zz-fairgate" in condition(watchers).why
        text = watchers.metrics.expose().body.decode()
        assert "fairgate_ca_trusted 1.0" in text
        assert "fairgate_ca_published 0.0" in text
        assert 'fairgate_certificate_changes_total{change="created"} 1.0' in text


async def test_without_the_api_probes_respond_and_report_what_is_missing(tmp_path, watchers):
    async with FakeApi().serving() as api:
        api.always["get"] = Answer(403)
        async with opened(settings_of(tmp_path, api.url), watchers) as certificates:
            assert not condition(watchers).ok
            assert "not read from Secret default/certs yet: cannot get secrets: 403" in condition(watchers).why
            assert "fairgate_ca_trusted 0.0" in watchers.metrics.expose().body.decode()
            with pytest.raises(ssl.SSLCertVerificationError):
                await handshake(certificates.context, make_authority().pem.decode())
            api.always.clear()
            await until(lambda: condition(watchers).ok)


async def test_certificates_in_a_secret_need_a_cluster(tmp_path, watchers):
    settings = replace(settings_for(tmp_path), certs=CertSecret("certs"))
    with pytest.raises(StartupError, match="certificates in a Secret need a cluster"):
        async with opened(settings, watchers):
            pass


async def test_an_invalid_host_is_a_startup_error(tmp_path, watchers):
    settings = replace(settings_of(tmp_path, "http://127.0.0.1:1"), cert_hosts=("two words",))
    with pytest.raises(StartupError, match="expected a DNS name or an IP address"):
        async with opened(settings, watchers):
            pass


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Reloaded(START, is_renewed=True), ("info", "certificate loaded", "renewed_by_us", True)),
        (ReloadFailed("it is broken"), ("error", "certificate kept", "why", "it is broken")),
        (BundleChanged(Change.TAKEN_OVER, "settled"), ("info", "certificates changed", "change", "taken_over")),
        (CaBundlesPublished(("a", "b")), ("info", "ca bundle published", "configurations", ["a", "b"])),
        (CaBundlesUnpublished("none there"), ("warning", "ca bundle not published", "why", "none there")),
    ],
)
def test_every_outcome_is_one_log_line(tmp_path, watchers, outcome, want):
    report(outcome, watchers)
    (line,) = read_log(tmp_path)
    level, event, field, value = want
    assert (line["level"], line["event"], line[field]) == (level, event, value)
