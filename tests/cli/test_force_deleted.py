"""What a pod deleted by force left of its charge: every surface says the same, by the name of the pod."""

import json

import pytest
from click.testing import CliRunner

from tests import builders as b
from tests.addons.page.support.pages import served, state_of
from tests.cli import sample_world
from webhook.cli.main import main
from webhook.core.model.amounts import ONE_GPU
from webhook.kube.objects import keys

TEXT = "it was deleted by force, and node gpu-1 may still run it: it stays charged with 4 GPUs for its grace period"
ENTRY = {"uid": "u-ghost/lingers", "ns": "vision", "name": "ghost", "gpus": 4 * ONE_GPU, "tier": "preemptible"}
LEFT = {"node": "gpu-1", "bound": "gpu-1", "label": "preemptible", "lingers": 35, "requests": {b.GPU: 4}}
LEDGER = {
    "apiVersion": keys.OWN_API,
    "kind": keys.TEAM_LEDGER,
    "metadata": {"name": "vision"},
    "status": {"team": "vision"},
    "ledger": {"inFlight": [ENTRY | LEFT]},
}
OBJECTS = [b.node("gpu-1"), LEDGER]


@pytest.fixture
def run(tmp_path):
    options = sample_world.write(tmp_path, OBJECTS)
    return lambda *words, **more: CliRunner().invoke(main, [words[0], *options, *words[1:]], **more)


def test_status_lists_it(run):
    [found] = json.loads(run("status", "-o", "json").stdout)["unusual"]
    assert (found["stage"], found["pods"], found["gpus"]) == ("lingering", ["vision/ghost"], "4")
    assert "1 pod of 4 GPUs deleted by force, which their nodes may still run" in run("status").stdout


def test_explain_says_why_the_pod_that_is_gone_still_counts(run):
    result = run("explain", "pod/ghost", "-n", "vision")
    assert (result.exit_code, TEXT in result.stderr) == (2, True), result.output
    assert TEXT not in run("explain", "pod/another", "-n", "vision").stderr


def test_a_refusal_says_which_part_of_the_limit_it_has(run):
    asks = json.dumps(b.pod("asks", namespace="vision", gpus=300))
    result = run("explain", "-", input=asks)
    assert "reserved 4 (4 of pods deleted by force)" in result.stdout, result.output


def test_its_page_says_so():
    with served(state_of(OBJECTS)) as page:
        page.enter()
        status, body = page.get("/explain?namespace=vision&name=ghost")
        assert (status, TEXT in body) == (404, True)
