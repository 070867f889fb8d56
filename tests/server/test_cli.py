"""`fairgate serve`: its flags, and its errors."""

from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.addons.history import server as history
from webhook.addons.messages import server as messages
from webhook.cli import serve as command
from webhook.core.model.policy import Enforcement
from webhook.observe.logs import LogFormat
from webhook.server.settings import Address, CertSecret, FileWorld, LiveCluster, ServerSettings, StartupError

REQUIRED = ("--policy", "policies", "--listen", ":8443", "--certs", "certs")
MORE = ("--history-megabytes", "64", "--notify-secrets", "s")


def invoke(*arguments):
    return CliRunner().invoke(command.serve, arguments)


@pytest.fixture
def made():
    """What makes the add-ons."""
    return []


@pytest.fixture
def received(monkeypatch, made):
    """Take the settings instead of serving."""
    settings = []

    async def run(given, *, addons):
        settings.append(given)
        made.extend(addons)

    monkeypatch.setattr(command, "run", run)
    return settings


def test_without_more_flags_the_cluster_of_this_pod_is_served(received):
    assert invoke(*REQUIRED).exit_code == 0
    assert received == [
        ServerSettings(policy=Path("policies"), world=LiveCluster(None), listen=Address("", 8443), certs=Path("certs"))
    ]


def test_a_cluster_may_be_named_with_the_namespace_of_our_own_objects(received):
    assert invoke(*REQUIRED, "--kubeconfig", "k", "--namespace", "infra").exit_code == 0
    assert (received[0].world, received[0].namespace) == (LiveCluster(Path("k")), "infra")


def test_every_flag_reaches_the_settings(received):
    result = invoke(
        *("--policy", "p", "--world", "w.yaml", "--listen", "[::1]:0", "--certs", "c", "--log-format", "console"),
        *("--drain-seconds", "0.5", "--cert-host", "a.b.svc", "--enforce", "warn"),
        *("--cert-lifetime", "30m", "--ca-lifetime", "24h", "--client-ca", "c.crt", "--namespace", "gpu"),
    )
    assert (result.exit_code, result.output) == (0, "")
    assert received == [
        ServerSettings(
            policy=Path("p"),
            world=FileWorld(Path("w.yaml")),
            listen=Address("::1", 0),
            certs=Path("c"),
            cert_hosts=("a.b.svc",),
            cert_lifetime=timedelta(minutes=30),
            ca_lifetime=timedelta(hours=24),
            client_ca=Path("c.crt"),
            namespace="gpu",
            log_format=LogFormat.CONSOLE,
            drain_seconds=0.5,
            enforce=Enforcement.WARN,
        )
    ]


def test_flags_of_addons_reach_the_addons(received, made):
    assert invoke(*REQUIRED, "--history", "h.db", "--history-days", "7", *MORE).exit_code == 0
    assert len(received) == 1
    assert history.Options(history=Path("h.db"), history_days=7, history_megabytes=64) in made
    assert messages.Options(notify_secrets=Path("s")) in made


def test_certificates_may_be_in_a_secret(received):
    assert invoke("--policy", "p", "--listen", ":8443", "--certs-secret", "fairgate-certs").exit_code == 0
    assert received[0].certs == CertSecret("fairgate-certs")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ((), "give either --certs or --certs-secret"),
        (("--certs", "c", "--certs-secret", "s"), "give either --certs or --certs-secret"),
        (("--certs-secret", "s", "--world", "w"), "--certs-secret and --world exclude each other"),
    ],
)
def test_certificates_come_from_one_place(received, arguments, want):
    result = invoke("--policy", "p", "--listen", ":8443", *arguments)
    assert result.exit_code == 2
    assert want in result.output
    assert received == []


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--world", "w", "--kubeconfig", "k"), "--world and --kubeconfig exclude each other"),
        (("--listen", "nowhere"), "expected HOST:PORT such as 127.0.0.1:8443"),
        (("--drain-seconds", "-1"), "Invalid value for '--drain-seconds'"),
        (("--cert-lifetime", "90d"), "expected a positive duration such as 5s"),
        (("--cert-lifetime", "1s"), "expected from 10s to 876000h"),
        (("--cert-lifetime", "40h", "--ca-lifetime", "100h"), "--ca-lifetime must be at least three times"),
        (("--log-format", "xml"), "Invalid value for '--log-format'"),
    ],
)
def test_wrong_flags_are_usage_errors(received, arguments, want):
    result = invoke(*REQUIRED, *arguments)
    assert result.exit_code == 2
    assert want in result.output
    assert received == []


def test_a_server_that_cannot_start_says_why_in_one_line_and_exits_2(monkeypatch):
    async def run(_settings, *, addons):  # noqa: ARG001
        raise StartupError("policies: no policy files")

    monkeypatch.setattr(command, "run", run)
    result = invoke(*REQUIRED)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "fairgate: cannot start: policies: no policy files\n"
