"""Servers that may open 1,024 files, and clients that hold 1,100 connections to one open: probes get through."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.blackbox.server import as_kubectl_prints, write_policy
from tests.popen import killed_on_failure

ROOT = Path(__file__).parents[2]
SILENT = 1_100
FILES = 1_024


POLICY = {"teams": [{"name": "vision", "namespaces": ["vision"], "gpus": {"limit": 8}}]}
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@contextmanager
def running(folder, *command):
    """A process that may open few files; yields its port."""
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(
            ["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh", sys.executable, "-m", "webhook", *command],
            cwd=folder,
            stdout=log,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    with killed_on_failure(started) as process:
        yield port_in(folder / "log", process)
        process.terminate()
        assert process.wait(timeout=90) == 0
    assert "Traceback" not in (folder / "log").read_text()


@contextmanager
def evictor(folder):
    """An evictor whose API server does not answer, as while it starts; yields its port."""
    write_policy(folder / "policy", POLICY)
    cluster = {"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "none", "context": {"cluster": "none", "user": "none", "namespace": "fairgate-system"}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
    config |= {"users": [{"name": "none", "user": {}}], "current-context": "none"}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    command = ["evict", "--policy", "policy", "--kubeconfig", "kubeconfig", "--dry-run", "--listen", "0.0.0.0:0"]
    with running(folder, *command) as port:
        yield port


@contextmanager
def webhook(folder):
    """A webhook without nodes; yields its port."""
    write_policy(folder / "policy", POLICY)
    (folder / "world.yaml").write_text(as_kubectl_prints([]))
    command = ["serve", "--policy", "policy", "--world", "world.yaml", "--certs", "certs", "--drain-seconds", "0"]
    with running(folder, *command, "--listen", "0.0.0.0:0") as port:
        yield port


def port_in(log, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n") and '"event":"listening"' in line:
                return int(json.loads(line)["url"].rpartition(":")[2])
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def probe(port, path="/healthz", *, tls=None):
    """The answer to a kubelet's probe: a new connection each."""
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=10)
    )
    connection.request("GET", path, headers={"Connection": "close"})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def hold(port, number, sent, stack):
    """Open a connection from an address of its own."""
    address = f"127.0.{number // 250}.{number % 250 + 2}"
    held = stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(address, 0)))
    held.sendall(sent)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", HALF_A_HELLO], ids=["silent", "half a handshake"])
def test_probes_of_a_webhook_get_through_however_many_clients_begin_no_handshake(tmp_path, sent):
    with webhook(tmp_path) as port, ExitStack() as stack:
        tls = ssl.create_default_context(cafile=tmp_path / "certs" / "ca.crt")
        for number in range(SILENT):
            hold(port, number, sent, stack)
        assert [probe(port, tls=tls) for _ in range(20)] == [(200, "ok\n")] * 20
        assert probe(port, "/metrics", tls=tls)[0] == 200
        log = (tmp_path / "log").read_text()
        assert "connections: the longest silent is closed" in log
        assert '"level":"error"' not in log


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "a head without end"])
def test_probes_get_through_however_many_connections_are_held(tmp_path, sent):
    with evictor(tmp_path) as port, ExitStack() as stack:
        for number in range(SILENT):
            hold(port, number, sent, stack)
            if number % 100 == 0:
                assert probe(port) == (200, "ok")
        assert [probe(port) for _ in range(20)] == [(200, "ok")] * 20
        assert probe(port, "/metrics")[0] == 200
        assert probe(port, "/readyz")[0] == 503


@pytest.mark.slow
def test_what_an_evictor_does_not_serve(tmp_path):
    with evictor(tmp_path) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for method, path, body, want in (
            ("GET", "/nothing", None, 404),
            ("POST", "/healthz", b"", 405),
            ("GET", "/healthz", b"x" * 64 * 1024, 413),
            ("HEAD", "/healthz", None, 200),
        ):
            connection.request(method, path, body=body)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == want
        connection.close()
