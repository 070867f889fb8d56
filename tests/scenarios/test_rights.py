"""What users see who are not admins: a data scientist with `edit` in one namespace, and one who is a viewer, too."""

import json
import zlib
from base64 import b64decode

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_for
from tests.scenarios.person import Person
from tests.scenarios.standing_fairgate import serve_fairgate
from webhook.cli.status import run as status

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "4Gi"}


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
    return str(fairgate.ledger(team)["status"]["used"])


def test_without_the_role_every_command_names_the_missing_rights_at_once(stage):
    fairgate, person = stage
    refused = person.fairgate("status")
    assert refused.exit_code == 2
    assert "kubectl create clusterrolebinding fairgate-NAME --clusterrole=fairgate-viewer" in refused.stderr
    assert "--policy" in refused.stderr
    assert refused.stderr.count("\n") == 1

    mine, notes = person.teams("--policy", fairgate.policy)
    assert (mine["a"]["used"], mine["b"]["used"]) == ("2", "0")
    assert notes["nodes"] == notes["free"] == []
    assert any("--clusterrole=fairgate-viewer" in note for note in notes["leftOut"])
    assert any("pods outside of namespace" in note for note in notes["leftOut"])
    text = person.fairgate("status", "--policy", fairgate.policy)
    assert text.exit_code == 0
    assert text.stderr.count("\n") == 1
    assert text.stderr.startswith("fairgate: free room is unknown: ask an admin for")


def test_a_viewer_needs_no_policy_and_sees_the_sums_of_all_teams(stage, tmp_path):
    fairgate, person = stage
    person.becomes_viewer()
    teams, _ = person.teams()
    assert (teams["a"]["used"], teams["b"]["used"]) == ("2", "6")
    assert [holder["name"] for holder in teams["a"]["holders"]] == [f"{fairgate.team_a}/Pod/mine"]

    def is_room_published():
        free = person.teams()[1]["free"]
        return sum(each["free"] for each in free) == 12

    wait_for(fairgate.cluster, is_room_published, what="the room of two nodes with 8 of 20 GPUs taken")
    text = person.fairgate("status")
    assert text.stderr == "fairgate: of other namespaces pods are counted and not named\n"

    explained = person.fairgate("explain", "pod/mine", "-n", fairgate.team_a, "--node", "node-1")
    assert explained.exit_code == 0, explained.output
    assert "0 + 2 = 2  of 20" in explained.stdout

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


def test_a_person_with_few_rights_sees_no_name_of_another_team(stage, tmp_path):
    fairgate, person = stage
    person.becomes_viewer()
    wait_for(fairgate.cluster, lambda: person.teams()[1]["free"], what="the room is published")
    wide = tmp_path / "wide.yaml"
    wide.write_text(json.dumps(job("wide", pods=1, gpus=8, **SIZE)))
    for command in (
        "status -o wide",
        "status -o json",
        "queue",
        "queue -o json",
        "explain pod/mine --node node-1",
        "explain pod/mine -o json",
        f"explain {wide} -o json",
        f"review --cluster {wide} -o json",
        "world",
    ):
        done = person.fairgate(*command.split(), "-n", fairgate.team_a)
        assert done.exit_code in {0, 1}, done.output
        assert not [word for word in ("theirs", fairgate.team_b) if word in done.output], command
    room = fairgate.cluster.kubectl("get", "reports.fairgate.dev", "room", "-o", "json", f"--as={person.name}")
    raw = zlib.decompress(b64decode(json.loads(room)["room"]["content"])).decode()
    assert not [word for word in ("theirs", "mine", fairgate.team_a, fairgate.team_b) if word in raw]


def test_watching_repeats_what_may_be_read(stage, monkeypatch):
    fairgate, person = stage
    person.becomes_viewer()
    drawn = []

    def redraw(options, reading, unknown):
        drawn.append(status._written(options, reading, unknown))
        if len(drawn) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "_redraw", redraw)
    assert person.fairgate("status", "--watch", "--interval", "0.1", "-o", "json").exit_code == 130
    assert all('"used": "6"' in text for text in drawn)
    assert fairgate.team_a
