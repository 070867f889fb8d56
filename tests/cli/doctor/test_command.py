"""The command over real HTTP: its requests, and its output without an installation."""

import asyncio
import json

import msgspec
import pytest
from click.testing import CliRunner

from tests.cli.doctor.stage import FILES, POLICY, process, report
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.kube.ledger import reports


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        yield server


def call(kubeconfig, *words):
    return CliRunner().invoke(main, ["doctor", "--kubeconfig", str(kubeconfig), *words], catch_exceptions=False)


def states(done):
    return {each["check"]: each["state"] for each in json.loads(done.stdout)["findings"]}


def test_an_unreachable_cluster_exits_with_two(tmp_path):
    done = call(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1"))
    assert done.exit_code == 2
    assert done.stderr.startswith("fairgate: cannot check the installation: cannot get reports")


async def test_without_an_installation_every_check_reports_what_is_missing(api, tmp_path):
    done = await asyncio.to_thread(call, write_kubeconfig(tmp_path / "kubeconfig", api.url), "-o", "json")
    assert done.exit_code == 1
    found = states(done)
    assert (found["server"], found["leader"], found["evictor"], found["policy"]) == ("wrong",) * 4
    assert found["webhooks"] == found["guards"] == "unknown", "the expected ones are unknown"
    assert {request.verb for request in api.asked} <= {"get", "list"}, "nothing is written, and no policy: no dry run"


async def test_the_registration_is_compared_with_a_given_policy(api, tmp_path):
    (tmp_path / "policy.yaml").write_bytes(FILES["policy.yaml"])
    api.put(reports.PATH, reports.REPLICAS, replicas={})
    api.always["post"] = Answer(403)
    config = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    done = await asyncio.to_thread(call, config, "--policy", str(tmp_path / "policy.yaml"), "-o", "yaml")
    assert done.exit_code == 1
    assert "ValidatingWebhookConfiguration fairgate is missing" in done.stdout
    assert "no guard is installed" in done.stdout


async def test_the_age_of_a_report_is_measured_by_the_api_servers_clock(api, tmp_path):
    """The sample's reports are of another year, so they are old by the API server's clock."""
    entries = {"pod-1_a": process(leading=True)}
    api.put(reports.PATH, reports.REPLICAS, replicas=msgspec.to_builtins(entries))
    api.put(reports.PATH, reports.POLICY, policy=msgspec.to_builtins(report().policy))
    done = await asyncio.to_thread(call, write_kubeconfig(tmp_path / "kubeconfig", api.url), "-o", "json")
    printed = {each["message"] for each in json.loads(done.stdout)["findings"] if each["check"] == "server"}
    assert any("pod-1_a has not reported for" in text for text in printed), printed
    created = [request for request in api.asked if request.verb == "post"]
    assert [each.query for each in created] == [{"dryRun": "All"}] * 3, "a GPU pod, and two that are to be refused"
    assert POLICY.hash in done.stdout


async def test_a_padded_pod_is_named(api, tmp_path):
    team = {"labels": {"fairgate.dev/team": "vision"}}
    padded = team | {"ownerReferences": [{"name": "o" * 1_400_000}]}
    for name, metadata in (("padded", padded), ("fine", team)):
        api.put("/api/v1/pods", name, namespace="vision", metadata=metadata, spec={})
    done = await asyncio.to_thread(call, write_kubeconfig(tmp_path / "kubeconfig", api.url), "-o", "json")
    found = [each["message"] for each in json.loads(done.stdout)["findings"] if each["check"] == "pods"]
    assert [message.split()[1] for message in found] == ["vision/padded"]
