"""`fairgate simulate` as a user calls it: tables, data, files, and every input that cannot be used."""

import csv
import json
from pathlib import Path

import pytest

from tests import builders as b
from tests.addons.simulation.simulate.support.calls import data, failed, simulate
from webhook import __version__
from webhook.addons.simulation.simulate import run

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 8, limit: LIMIT}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 8, limit: 16}}
defaults: {onLimit: queue, onNoRoom: queue}
"""
NODES = "name,gpus,model,count\na100,8,A100,2\n"
TRACE = """name,team,gpus,created,seconds
train,vision,8,0,3600
more,vision,8,60,3600
serve,nlp,8,120,600
"""


@pytest.fixture
def no_plots(monkeypatch):
    """Without the extra that draws: each plot takes long."""
    monkeypatch.setattr(run, "can_draw", lambda: False)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "borrow.yaml").write_text(POLICY.replace("LIMIT", "16"))
    (tmp_path / "strict.yaml").write_text(POLICY.replace("LIMIT", "8"))
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "tasks.csv").write_text(TRACE)
    return tmp_path


def test_policies_side_by_side():
    found = data("--policy", "borrow.yaml", "--policy", "strict.yaml", "--trace", "tasks.csv")
    borrow, strict = found.policies
    assert (borrow.policy, borrow.gpus, borrow.nodes) == ("borrow.yaml", 16, 2)
    assert [(each.group, each.wait_p99.mean) for each in borrow.teams] == [("nlp", 0), ("vision", 0)]
    assert borrow.total.evictions.mean == 1  # the borrowed node goes to its owner
    assert [(each.group, each.wait_p99.mean) for each in strict.teams] == [("nlp", 0), ("vision", 3540)]
    assert strict.total.evictions.mean == 0
    table = simulate("--policy", "borrow.yaml", "--policy", "strict.yaml", "--trace", "tasks.csv").stdout
    assert "team vision" in table
    assert "59m" in table
    assert "2 nodes with 16 GPUs of nodes.csv; tasks.csv, 2m, 1 round from seed 0" in table


def test_a_load_in_rounds_is_the_same_each_time():
    words = ("--policy", "borrow.yaml", "--load", "0.7", "--days", "0.02", "--run-time", "10m", "--rounds", "3")
    found = data(*words)
    assert found == data(*words)
    assert found != data(*words, "--seed", "1")
    assert found.policies[0].total.jobs.margin > 0


def test_sizes_of_a_trace_under_a_load():
    found = data("--policy", "borrow.yaml", "--load", "0.5", "--days", "0.1", "--trace", "tasks.csv")
    assert [each.group for each in found.policies[0].sizes] == ["5-8"]
    assert {each.group for each in found.policies[0].teams} == {"vision", "nlp"}


def test_how_many_nodes_to_buy(folder):
    (folder / "tasks.csv").write_text("gpus,team,created,seconds\n" + "8,nlp,0,7200\n" * 2 + "8,vision,0,7200\n" * 2)
    buying = ("--policy", "borrow.yaml", "--trace", "tasks.csv", "--buy", "8xA100", "--within", "1m")
    [found] = data(*buying).purchases
    assert (found.nodes, found.gpus_of_node, found.model) == (2, 8, "A100")
    assert found.tried == {0: 7200, 1: 7200, 2: 0}
    assert "buy 2 nodes of 8 A100: 16 GPUs" in simulate(*buying).stdout
    [found] = data(*buying, "--within", "3h").purchases
    assert found.nodes == 0
    words = ("--buy", "1xA100", "--of-team", "vision")  # no job of eight GPUs fits on such nodes
    [found] = data("--policy", "borrow.yaml", "--trace", "tasks.csv", *words, "--within", "1m").purchases
    assert found.nodes is None
    assert len(found.tried) > 10


def test_a_world_file_is_used_without_its_gpu_pods(folder):
    holder = b.pod(
        "holder", gpus=8, node="n", labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    )
    listed = {"apiVersion": "v1", "kind": "List", "items": [{**b.node("n", gpus=8)}, holder]}
    (folder / "world.json").write_text(json.dumps(listed))
    one = "gpus,team,created,seconds\n8,nlp,0,60\n"
    (folder / "tasks.csv").write_text(one)
    words = ("--policy", "borrow.yaml", "--trace", "tasks.csv")
    assert data(*words, world="world.json").policies[0].total.wait_p50.mean == 0
    assert data(*words, "--keep-pods", world="world.json").policies[0].total.wait_p50 is None
    (folder / "tasks.csv").write_text(one.replace("gpus,", "gpus,gpu_milli,").replace("8,", "1,500,"))
    assert "got a whole one" in data(*words, world="world.json").notes[0]


def test_pods_in_line_of_a_world_that_is_kept_start_and_stay(folder):
    labels = {"fairgate.dev/team": "vision"}
    waiting = b.pod("waiting", namespace="vision", gpus=8, labels=labels, gates=["fairgate.dev/queue"])
    waiting["metadata"]["creationTimestamp"] = "2026-11-25T19:00:00Z"
    listed = {"apiVersion": "v1", "kind": "List", "items": [b.node("n", gpus=8), waiting]}
    (folder / "world.json").write_text(json.dumps(listed))
    (folder / "tasks.csv").write_text("gpus,team,created,seconds\n8,vision,0,60\n")
    words = ("--policy", "strict.yaml", "--trace", "tasks.csv")
    assert data(*words, "--keep-pods", world="world.json").policies[0].total.never_started.mean == 1
    assert data(*words, world="world.json").policies[0].total.never_started.mean == 0


def test_kept_pods_had_their_minimum_runtime_by_their_own_age(folder):
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"}
    items = [b.node("n", gpus=8)]
    for name, created in (("old", "2026-11-25T10:00:00Z"), ("new", "2026-11-25T19:00:00Z")):
        pod = b.pod(name, namespace="vision", gpus=4, node="n", labels=labels)
        pod["metadata"]["creationTimestamp"] = created
        items.append(pod)
    (folder / "world.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    borrowing = POLICY.replace("guaranteed: 8, limit: LIMIT", "guaranteed: 0, limit: 16")
    (folder / "borrowing.yaml").write_text(borrowing + "reclaim: {minimumRuntime: 1h}\n")
    (folder / "tasks.csv").write_text("gpus,team,created,seconds\n4,nlp,0,60\n4,nlp,1,60\n")
    found = (
        data("--policy", "borrowing.yaml", "--trace", "tasks.csv", "--keep-pods", world="world.json").policies[0].total
    )
    assert (found.wait_p50.mean, found.wait_p99.mean) == (0, 59)  # the old one goes at once, the new one is protected


@pytest.mark.usefixtures("no_plots")
def test_a_task_that_can_never_start_says_why(folder):
    rows = "huge,9,nlp,0,60", "wide,9,nlp,1,60", "fits,8,nlp,2,9"
    (folder / "tasks.csv").write_text("\n".join(["name,gpus,team,created,seconds", *rows]))
    words = ("--policy", "borrow.yaml", "--trace", "tasks.csv")
    [refused] = data(*words).policies[0].refused
    assert (refused.codes, refused.jobs, refused.first) == (("NeverFits",), 2, "huge")
    assert "8" in refused.why
    want = "refused: 2 jobs, the first of them huge: no node could hold the pod"
    assert want in simulate(*words, "--report", "report.html").stdout
    assert want in (folder / "report.html").read_text()


@pytest.mark.usefixtures("no_plots")
def test_jobs_that_have_not_started_at_the_end_say_what_for(folder):
    (folder / "tasks.csv").write_text("name,gpus,team,created,seconds,pods\nwide,8,vision,0,60,2\n")
    words = ("--policy", "strict.yaml", "--trace", "tasks.csv")
    [found] = data(*words).policies
    [waiting] = found.waiting
    assert (waiting.codes, waiting.jobs, waiting.first) == (("TeamLimitExceeded",), 1, "wide-1")
    assert found.refused == []
    want = "not started at the end: 1 job, the first of them wide-1: exceeded quota: gang wide needs 16 GPUs together"
    assert want in simulate(*words, "--report", "report.html").stdout
    assert want in (folder / "report.html").read_text()


def test_what_a_pod_in_line_waits_for_at_the_end(folder):
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    holder = b.pod("holder", namespace="vision", gpus=8, node="n", labels=labels)
    listed = {"apiVersion": "v1", "kind": "List", "items": [b.node("n", gpus=16), holder]}
    (folder / "world.json").write_text(json.dumps(listed))
    (folder / "tasks.csv").write_text("gpus,team,created,seconds\n8,vision,0,60\n")
    words = ("--policy", "strict.yaml", "--trace", "tasks.csv", "--keep-pods")
    [waiting] = data(*words, world="world.json").policies[0].waiting
    assert waiting.codes == ("WaitsForLimit",)
    assert "team vision holds 8 of 8" in waiting.why


def test_tasks_without_times_beside_others_are_left_out_of_a_load_and_counted(folder):
    (folder / "tasks.csv").write_text("gpus,seconds,team\n8,60,nlp\n8,,nlp\n")
    [note] = data("--policy", "borrow.yaml", "--trace", "tasks.csv", "--load", "0.5", "--days", "0.01").notes
    assert note == "left out of the trace: tasks without a run time: 1"


def test_the_policy_of_the_environment(monkeypatch):
    monkeypatch.setenv("FAIRGATE_POLICY", "borrow.yaml")
    assert [each.policy for each in data("--trace", "tasks.csv").policies] == ["borrow.yaml"]
    found = data("--policy", "strict.yaml", "--trace", "tasks.csv")
    assert [each.policy for each in found.policies] == ["strict.yaml"]


@pytest.mark.slow
def test_files_a_report_page_and_plots(folder):
    words = ("--policy", "borrow.yaml", "--trace", "tasks.csv", "--csv", "out", "--report", "report.html")
    done = simulate(*words)
    assert done.exit_code == 0
    named = [line.removeprefix("written: ") for line in done.stdout.splitlines() if line.startswith("written: ")]
    assert sorted(named) == sorted(["report.html", *(str(path) for path in Path("out").iterdir())])
    assert "2 nodes with 16 GPUs of nodes.csv" in (folder / "report.html").read_text()
    assert (folder / "out" / "gpus-in-use.svg").read_text().startswith("<?xml")
    with (folder / "out" / "groups.csv").open() as file:
        groups = list(csv.DictReader(file))
    want = [("total", "all"), ("team", "nlp"), ("team", "vision"), ("size", "5-8")]
    assert [(each["kind"], each["group"]) for each in groups] == want
    assert groups[0]["jobs"] == "3"
    with (folder / "out" / "samples.csv").open() as file:
        samples = list(csv.DictReader(file))
    assert samples[-1]["atSeconds"] == "120"


@pytest.mark.usefixtures("no_plots")
def test_beside_data_what_was_written_is_on_stderr():
    done = simulate("--policy", "borrow.yaml", "--trace", "tasks.csv", "--report", "report.html", "-o", "json")
    assert json.loads(done.stdout)["version"] == __version__
    assert done.stderr.count("written: ") == 1


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param([], "give --trace, --load or both", id="no load"),
        pytest.param(["--trace", "none.csv"], "none.csv: cannot be read", id="no trace"),
        pytest.param(["--trace", "."], ".: cannot be read: Is a directory", id="a folder"),
        pytest.param(["--trace", "tasks.csv", "--rounds", "2"], "--rounds needs --load", id="rounds of a trace"),
        pytest.param(["--load", "0"], "--load", id="no load at all"),
        pytest.param(["--load", "0.5", "--mix", "x"], "expected GPUS:WEIGHT", id="mix"),
        pytest.param(["--load", "0.5", "--run-time", "0s"], "--run-time must be above 0", id="no run time"),
        pytest.param(["--load", "0.5", "--run-time", "soon"], "expected a length of time such as 90s", id="run time"),
        pytest.param(["--load", "0.5", "--buy", "A100"], "expected GPUSxMODEL", id="what to buy"),
        pytest.param(["--load", "0.5", "--rename-team", "x"], "expected OLD=NEW", id="rename"),
        pytest.param(
            ["--trace", "tasks.csv", "--buy", "8xA100", "--of-team", "x"],
            "has no team x; teams: nlp, vision",
            id="team",
        ),
    ],
)
def test_options_that_cannot_be_used(words, want):
    assert want in failed("--policy", "borrow.yaml", *words)


@pytest.mark.parametrize(
    ("trace", "want"),
    [
        pytest.param("", "tasks.csv: is empty", id="empty"),
        pytest.param("gpus,created,seconds\n", "tasks.csv: has no task", id="no task"),
        pytest.param("gpus,created\n1,0\n", "tasks.csv:1: columns are missing: seconds", id="columns"),
        pytest.param("gpus,team,created,seconds\n1,x,0,5\n", "tasks.csv:2: unknown team x", id="team"),
        pytest.param("gpus,created,seconds\n1,0,-1\n", "tasks.csv:2: seconds: got '-1'", id="negative"),
        pytest.param(f"gpus,created,seconds,pods\n1,0,1,{10**18}\n", "tasks.csv:2: pods: got", id="10^18 pods"),
        pytest.param("\xff\xfe", "tasks.csv: is not text in UTF-8", id="bytes"),
        pytest.param("gpus,created,seconds,model\n1,0,1,X\n", "tasks.csv:2: no node has GPU model X", id="model"),
    ],
)
def test_traces_that_cannot_be_used(folder, trace, want):
    (folder / "tasks.csv").write_bytes(trace.encode("latin-1"))
    assert want in failed("--policy", "borrow.yaml", "--trace", "tasks.csv")


def test_worlds_that_cannot_be_used(folder):
    (folder / "nodes.csv").write_text("name,gpus\n")
    words = ("--policy", "borrow.yaml", "--load", "0.5")
    assert "nodes.csv: has no node with GPUs" in failed(*words)
    assert "none.csv: cannot be read" in failed(*words, world="none.csv")
    (folder / "world.json").write_text('{"kind": "List", "apiVersion": "v1", "items": []}')
    assert "the world has none" in failed(*words, world="world.json")
    assert "no-policy" in failed("--load", "0.5", "--policy", "no-policy")


def test_outputs_that_cannot_be_written(folder):
    (folder / "out").write_text("")
    assert "cannot be written" in failed("--policy", "borrow.yaml", "--trace", "tasks.csv", "--csv", "out")
