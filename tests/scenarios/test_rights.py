"""What users see who are not admins: a data scientist with `edit` in one namespace, and one who is a viewer, too."""

import json

import pytest
from click.testing import CliRunner

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate
from webhook.cli.main import main

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "4Gi"}


class Person:
    """A user with the ClusterRole `edit` in a namespace, at a shell."""

    def __init__(self, cluster, name, namespace):
        cluster.kubectl("create", "rolebinding", name, "--clusterrole=edit", f"--user={name}", "-n", namespace)
        self._cluster, self._name = cluster, name
        self.kubeconfig = cluster.user_kubeconfig(name, namespace=namespace)

    def becomes_viewer(self):
        role = "--clusterrole=fairgate-viewer"
        self._cluster.kubectl("create", "clusterrolebinding", self._name, role, f"--user={self._name}")
        access = ("auth", "can-i", "get", "reports.fairgate.dev", f"--as={self._name}")
        wait_for(self._cluster, lambda: self._cluster.kubectl(*access, check=False).strip() == "yes", what="a viewer")

    def fairgate(self, *words, stdin=None):
        options = [] if "--world" in words else ["--kubeconfig", str(self.kubeconfig)]
        return CliRunner().invoke(main, [*map(str, words), *options], input=stdin, catch_exceptions=False)

    def teams(self, *words):
        notes = json.loads(self.fairgate("status", "-o", "json", *words).stdout)
        return {team["name"]: team for team in notes["teams"]}, notes


@pytest.fixture
def stage(cluster):
    """Two teams that hold GPUs, and a user of the first."""
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("mine", gpus=2, **SIZE))
        create_pod(cluster, fairgate.team_b, pod("theirs", gpus=6, **SIZE))
        wait_for(cluster, lambda: (fairgate.charged("a"), fairgate.charged("b")) == (2, 6), what="8 GPUs charged")
        wait_for(
            cluster, lambda: fairgate.ledger("b")["status"]["used"] == "6" == _held(fairgate, "b"), what="their ledger"
        )
        yield fairgate, Person(cluster, f"jane-{fairgate.team_a}", fairgate.team_a)


def _held(fairgate, team):
    return str(int(fairgate.ledger(team)["status"]["used"]) + int(fairgate.ledger(team)["status"]["reserved"]))


def test_without_the_role_every_command_names_the_missing_rights_at_once(stage):
    fairgate, person = stage
    refused = person.fairgate("status")
    assert refused.exit_code == 2
    assert "ClusterRole fairgate-viewer grants the right" in refused.stderr
    assert "--policy" in refused.stderr

    mine, notes = person.teams("--policy", fairgate.policy)
    assert (mine["a"]["used"], mine["b"]["used"]) == ("2", "0")
    assert notes["nodes"] == notes["free"] == []
    assert any("you need the ClusterRole fairgate-viewer" in note for note in notes["leftOut"])
    text = person.fairgate("status", "--policy", fairgate.policy)
    assert text.exit_code == 0
    assert text.stderr.count("not shown, because you may not list them") == 1
    assert "pods outside of namespace" in text.stderr


def test_a_viewer_needs_no_policy_and_sees_the_sums_of_all_teams(stage, tmp_path):
    fairgate, person = stage
    person.becomes_viewer()
    teams, notes = person.teams()
    assert (teams["a"]["used"], teams["b"]["used"]) == ("2", "6")
    assert [holder["name"] for holder in teams["a"]["holders"]] == [f"{fairgate.team_a}/Pod/mine"]
    assert notes["free"] == []

    explained = person.fairgate("explain", "pod/mine", "-n", fairgate.team_a)
    assert explained.exit_code == 0, explained.output
    assert "0 + 2 = 2  of 20" in explained.stdout
    assert "not looked at: you may not list all nodes and pods" in explained.stdout

    wide = tmp_path / "wide.yaml"
    wide.write_text(json.dumps(job("wide", pods=1, gpus=8, **SIZE)))
    own = person.fairgate("review", "--cluster", "-n", fairgate.team_a, wide)
    assert own.exit_code == 0, own.output
    many = tmp_path / "many.yaml"
    many.write_text(json.dumps(job("many", pods=2, gpus=8, **SIZE)))
    theirs = person.fairgate("review", "--cluster", "-n", fairgate.team_b, many, "-o", "json")
    assert theirs.exit_code == 1, theirs.output
    refused = [each for each in json.loads(theirs.stdout)["workloads"][0]["pods"] if each["outcome"] == "refused"]
    assert "requested 8, limit 20, used" in refused[0]["reasons"][0]["message"]

    checked = person.fairgate("policy", "check", fairgate.policy, "--cluster", "--fail-on", "warning")
    assert checked.exit_code == 0, checked.output
    less = tmp_path / "less.yaml"
    less.write_text(
        (fairgate.policy / "teams.yaml")
        .read_text()
        .replace('"guaranteed": 20, "limit": 20', '"guaranteed": 0, "limit": 1')
    )
    differs = person.fairgate("policy", "diff", less)
    assert differs.exit_code in {0, 1}, differs.output
    assert f"{fairgate.team_a}/mine" in differs.stdout

    saved = person.fairgate("world")
    assert saved.exit_code == 0
    assert "mine" in saved.stdout
    assert "theirs" not in saved.stdout


def test_watching_repeats_what_may_be_read(stage, monkeypatch):
    fairgate, person = stage
    person.becomes_viewer()
    drawn = []

    def redraw(text):
        drawn.append(text)
        if len(drawn) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("webhook.cli.status.run._redraw", redraw)
    assert person.fairgate("status", "--watch", "--interval", "0.1", "-o", "json").exit_code == 0
    assert all('"used": "6"' in text for text in drawn)
    assert fairgate.team_a
