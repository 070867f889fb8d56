"""The command over real HTTP: what it asks for, and what it says where there is nothing to see."""

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


def test_a_cluster_that_cannot_be_asked_ends_with_two(tmp_path):
    done = call(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1"))
    assert done.exit_code == 2
    assert done.stderr.startswith("fairgate: could not look: cannot get reports")


async def test_where_nothing_is_installed_every_check_says_what_is_missing(api, tmp_path):
    done = await asyncio.to_thread(call, write_kubeconfig(tmp_path / "kubeconfig", api.url), "-o", "json")
    assert done.exit_code == 1
    found = states(done)
    assert (found["server"], found["leader"], found["evictor"], found["policy"]) == ("wrong",) * 4
    assert found["webhooks"] == found["guards"] == "unknown", "nobody knows which are wanted"
    assert {asked.verb for asked in api.asked} <= {"get", "list"}, "nothing is written, and no policy: no dry run"


async def test_with_a_policy_of_ones_own_what_is_registered_is_held_against_it(api, tmp_path):
    (tmp_path / "policy.yaml").write_bytes(FILES["policy.yaml"])
    api.put(reports.PATH, reports.REPLICAS, replicas={})
    api.always["post"] = Answer(403)
    config = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    done = await asyncio.to_thread(call, config, "--policy", str(tmp_path / "policy.yaml"), "-o", "yaml")
    assert done.exit_code == 1
    assert "ValidatingWebhookConfiguration fairgate is missing" in done.stdout
    assert "none of the guards is installed" in done.stdout


async def test_the_age_of_a_report_is_told_by_the_api_servers_clock(api, tmp_path):
    """The sample's reports are of another year: whatever this machine's clock says, they are old."""
    entries = {"pod-1_a": process(leading=True)}
    api.put(reports.PATH, reports.REPLICAS, replicas=msgspec.to_builtins(entries))
    api.put(reports.PATH, reports.POLICY, policy=msgspec.to_builtins(report().policy))
    done = await asyncio.to_thread(call, write_kubeconfig(tmp_path / "kubeconfig", api.url), "-o", "json")
    told = {each["message"] for each in json.loads(done.stdout)["findings"] if each["check"] == "server"}
    assert any("pod-1_a has not reported for" in text for text in told), told
    [dry] = [asked for asked in api.asked if asked.verb == "post"]
    assert dry.query == {"dryRun": "All"}
    assert POLICY.hash in done.stdout
