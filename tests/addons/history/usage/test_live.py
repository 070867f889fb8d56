"""Usage from the servers of a cluster: every pod is asked through the API server, with a token for this alone."""

import asyncio
import json
import threading
from contextlib import contextmanager

import msgspec
import pytest
from click.testing import CliRunner

from tests.addons.history import recorded
from tests.addons.history.support import T0, row
from tests.cluster.support.fake_api import Answer, Body, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.addons.history import reader
from webhook.addons.history.reader import recorded_trace
from webhook.addons.history.store import HistoryError
from webhook.addons.history.usage.live import read_live
from webhook.cli.main import main
from webhook.kube.objects.keys import READER, TOKEN_HEADER

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fairgate"
PODS = "/api/v1/namespaces/gpus/pods"
TOKEN = f"/api/v1/namespaces/gpus/serviceaccounts/{READER}/token"


def body(value):
    return Body(json.dumps(value).encode())


def proxy(pod):
    return f"{PODS}/https:{pod}:8443/proxy/usage"


@pytest.fixture
def api():
    """A fake API server in a thread, since the command has an event loop of its own."""
    with in_thread(FakeApi()) as api:
        client = {"service": {"name": "fairgate", "namespace": "gpus"}}
        answers = {
            f"get {CONFIGURATION}": body({"webhooks": [{"name": "validate", "clientConfig": client}]}),
            f"post {TOKEN}": body({"status": {"token": "short-lived"}}),
            f"list {PODS}": body({"items": [{"metadata": {"name": name}} for name in ("fairgate-0", "fairgate-1")]}),
            f"get {proxy('fairgate-0')}": Body(reader.encode([row("observed", 300), row("refused", 1, team="a")])),
            f"get {proxy('fairgate-1')}": Body(reader.encode([row("refused", 2, team="a")])),
        }
        for request, answer in answers.items():
            api.faults[request].append(answer)
        yield api


@contextmanager
def in_thread(api):
    started, stop = threading.Event(), None

    async def serve():
        nonlocal stop
        stop = asyncio.Event()
        async with api.serving():
            started.set()
            await stop.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait(60)
    try:
        yield api
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def read(api, tmp_path):
    return read_live(write_kubeconfig(tmp_path / "kubeconfig", api.url), T0, T0 + 3600)


def test_every_server_is_asked_with_the_token_in_a_header_of_its_own(api, tmp_path):
    found = read(api, tmp_path)
    assert [(each.name, len(each.rows)) for each in found] == [("fairgate-0", 2), ("fairgate-1", 1)]
    asked = [each for each in api.asked if each.path.endswith("/usage")]
    assert {each.headers[TOKEN_HEADER] for each in asked} == {"short-lived"}
    assert {(each.query["since"], each.query["until"]) for each in asked} == {(str(T0), str(T0 + 3600))}


def test_replay_reads_the_pods_that_all_servers_recorded(api, tmp_path):
    file = recorded.write(tmp_path / "history.db")
    for name in ("fairgate-0", "fairgate-1"):
        api.faults[f"get {proxy(name)}"].clear()
        api.faults[f"get {proxy(name)}"].append(Body(msgspec.json.encode(recorded_trace(file, T0, recorded.UNTIL))))
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "p.yaml").write_text(recorded.POLICY.replace("limit: 16", "limit: 8"))
    config = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    command = ["replay", "--policy", str(folder)]
    live = CliRunner().invoke(main, [*command, "--kubeconfig", str(config)])
    assert live.exit_code == 1, live.output
    assert live.stdout == CliRunner().invoke(main, [*command, str(file)]).stdout
    assert {each.query["of"] for each in api.asked if each.path.endswith("/usage")} == {"pods"}


@pytest.mark.parametrize(
    ("request_", "answer", "why"),
    [
        (f"get {CONFIGURATION}", Answer(404), "Fairgate is not registered in this cluster"),
        (f"get {CONFIGURATION}", Answer(403), "verb get on validatingwebhookconfigurations"),
        (f"post {TOKEN}", Answer(403), "verb create on serviceaccounts/token; docs/reference/rights.md#usage"),
        (f"list {PODS}", Answer(403), "verb list on pods"),
        (f"list {PODS}", body({"items": []}), "no server runs in namespace gpus"),
        (f"get {proxy('fairgate-1')}", Answer(403), "verb get on pods/proxy"),
        (f"get {proxy('fairgate-1')}", Answer(503), "503"),
        (f"get {proxy('fairgate-1')}", Body(b"<html>"), "fairgate-1 did not answer with a history"),
    ],
)
def test_what_is_missing_is_named(api, tmp_path, request_, answer, why):
    api.faults[request_].clear()
    api.faults[request_].append(answer)
    with pytest.raises(HistoryError) as raised:
        read(api, tmp_path)
    assert why in str(raised.value)
