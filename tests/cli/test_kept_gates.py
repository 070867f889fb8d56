"""A pod that is charged and keeps its gate, while its room is made, counts in every command as in the webhook."""

import json

import pytest
from click.testing import CliRunner

from tests import builders as b
from webhook.cli.main import main
from webhook.core.model.amounts import ONE_GPU
from webhook.kube.objects import keys

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: [a], gpus: {guaranteed: 0, limit: 16}}
  - {name: b, namespaces: [b], gpus: {guaranteed: 8, limit: 8}}
defaults: {onNoRoom: queue}
"""
HOLD = {"key": keys.HELD, "value": "h1", "effect": "NoSchedule"}
ENTRY = {"uid": "u-secret", "ns": "b", "name": "secret", "gpus": 8 * ONE_GPU, "tier": "guaranteed", "reclaims": True}
LEDGER = {
    "apiVersion": keys.OWN_API,
    "kind": keys.TEAM_LEDGER,
    "metadata": {"name": "b"},
    "status": {"team": "b"},
    "ledger": {"inFlight": [ENTRY | {"node": "n1", "user": "secret-user", "owner": "Job/secret-job"}]},
}


def objects(*, is_held, ledgers=()):
    held = b.node("n1", taints=[HOLD]) if is_held else b.node("n1")
    borrower = b.pod("borrower", namespace="a", uid="u-b", gpus=8, node="n1", labels={keys.TIER: "preemptible"})
    tolerations = [{**HOLD, "operator": "Equal"}] if is_held else []
    gates = [{"name": keys.QUEUE_GATE}]
    labels = {keys.TEAM: "b"}
    kept = b.pod(
        "secret", namespace="b", uid="u-secret", gpus=8, labels=labels, schedulingGates=gates, tolerations=tolerations
    )
    return [held, b.node("n2"), borrower, kept, *ledgers]


@pytest.fixture(params=["by a ledger", "by the node that keeps its room"])
def fairgate(request, tmp_path):
    by_ledger = request.param == "by a ledger"
    found = objects(is_held=not by_ledger, ledgers=[LEDGER] if by_ledger else [])
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "p.yaml").write_text(POLICY)
    (tmp_path / "world.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    (tmp_path / "third.json").write_text(json.dumps(b.pod("third", namespace="b", gpus=1)))

    def run(*words, world="world.json"):
        options = ["--policy", str(tmp_path / "policy"), "--world", str(tmp_path / world)]
        return CliRunner().invoke(main, [*words[:1], *options, *map(str, words[1:])], catch_exceptions=False)

    run.folder = tmp_path
    return run


REFUSAL = "team b: requested 1, limit 8, used 0, reserved 8"


def test_status_counts_it_as_charged_and_not_as_waiting_for_its_turn(fairgate):
    teams = {each["name"]: each for each in json.loads(fairgate("status", "-o", "json").stdout)["teams"]}
    assert teams["b"]["used"] == "8"
    assert "queued" not in teams["b"]


def test_explain_and_review_refuse_the_next_pod_as_the_webhook_does(fairgate):
    assert REFUSAL in fairgate("explain", fairgate.folder / "third.json").stdout
    assert REFUSAL in fairgate("review", fairgate.folder / "third.json").stdout


def test_the_line_says_that_it_is_charged(fairgate):
    [row] = json.loads(fairgate("queue", "-o", "json").stdout)["pods"]
    assert (row["name"], row["charged"], row["place"]) == ("secret", True, None)


def test_a_world_file_keeps_its_charge_and_pseudonyms_decide_alike(fairgate):
    for options in ([], ["--pseudonyms"]):
        saved = fairgate("world", "-o", "json", *options).stdout
        assert ("secret" in saved) is not bool(options)
        (fairgate.folder / "saved.json").write_text(saved)
        assert REFUSAL in fairgate("review", fairgate.folder / "third.json", world="saved.json").stdout


def test_policy_diff_counts_it_for_the_pods_behind_it(fairgate):
    folder = fairgate.folder / "new"
    folder.mkdir()
    (folder / "p.yaml").write_text(POLICY.replace("guaranteed: 8, limit: 8", "guaranteed: 4, limit: 4"))
    options = ["policy", "diff", "--world", str(fairgate.folder / "world.json"), "-o", "json"]
    done = CliRunner().invoke(main, [*options, str(fairgate.folder / "policy"), str(folder)], catch_exceptions=False)
    [change] = json.loads(done.stdout)["changes"]
    assert (change["pod"], change["old"]["outcome"], change["new"]["outcome"]) == ("b/secret", "queued", "refused")
