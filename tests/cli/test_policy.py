"""`fairgate policy`: what it prints and how it ends."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import builders as b
from tests.cli import golden, sample_world
from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.policy.schema import DIALECT

GOLDEN = Path(__file__).parent / "golden"
HEADER = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, ["policy", *arguments])


def test_valid_policy_is_summarized(run, tmp_path):
    teams = "teams: [{name: b, namespaces: [b]}, {name: a, namespaces: [a]}]\npools: [{name: p}]"
    (tmp_path / "a.yaml").write_text(HEADER + teams)
    result = run("check", str(tmp_path))
    assert result.exit_code == 0
    head, *rest, last = result.stdout.splitlines()
    assert (head, rest) == (f"{tmp_path}: valid", ["  teams  a, b", "  pools  p"])
    assert last.startswith("  hash   ")


def test_problems_go_to_stdout_line_by_line_and_their_count_to_stderr(run, tmp_path):
    (tmp_path / "a.yaml").write_text(HEADER + "teams: [{name: a}]\nplacement: {mode: x}")
    result = run("check", str(tmp_path))
    assert result.exit_code == 1
    assert [line.split(": ")[:2] for line in result.stdout.splitlines()] == [
        [f"{tmp_path}/a.yaml:3", "teams[0].namespaces"],
        [f"{tmp_path}/a.yaml:4", "placement.mode"],
    ]
    assert result.stderr == f"2 problems in {tmp_path}\n"


def test_unreadable_folder_exits_with_2(run, tmp_path):
    result = run("check", str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"cannot read {tmp_path}/nowhere: No such file or directory\n"


def test_empty_folder_is_a_problem(run, tmp_path):
    result = run("check", str(tmp_path))
    assert (result.exit_code, result.stdout) == (
        1,
        f"{tmp_path}: no policy files: expected at least one *.yaml or *.yml here\n",
    )


def test_schema_is_the_committed_one(run):
    result = run("schema")
    committed = (Path(__file__).parents[2] / "policies" / "schema.json").read_text()
    assert (result.exit_code, result.stdout) == (0, committed)
    assert json.loads(committed)["$schema"] == DIALECT


@pytest.mark.parametrize("command", ["check", "schema"])
def test_help_shows_examples(run, command):
    assert f"fairgate policy {command}" in run(command, "--help").stdout


@pytest.fixture
def world(tmp_path):
    sample_world.write(tmp_path)
    return ["--world", str(tmp_path / "world.json")]


def edited(tmp_path, *changes):
    text = sample_world.POLICY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "new.yaml").write_text(text)
    return str(tmp_path / "new.yaml")


def test_a_valid_policy_is_compared_with_a_world(run, world, tmp_path):
    new = edited(tmp_path, ("guaranteed: 2,", "guaranteed: 200,"))
    result = run("check", new, *world)
    assert result.exit_code == 0
    assert "gpus.guaranteed: cannot be met: all nodes together have" in result.stdout
    nodes = "gpu-1 gpu-10 gpu-2 gpu-3 gpu-4 mig-1 t4-1"
    assert (
        "add a toleration of nvidia.com/gpu to their pool, then "
        f"kubectl taint nodes {nodes} nvidia.com/gpu=present:NoSchedule"
    ) in result.stdout
    assert f"{new}: valid" in result.stdout
    assert "3 warnings in" in result.stderr
    assert run("check", new, *world, "--fail-on", "warning").exit_code == 1
    assert run("check", new, "--fail-on", "warning").exit_code == 0


def test_an_invalid_world_exits_with_2(run, world, tmp_path):
    (tmp_path / "world.json").write_text("[")
    result = run("check", edited(tmp_path), *world)
    assert result.exit_code == 2
    assert "world.json" in result.stderr


def test_an_edit_is_shown_by_the_pods_that_change(run, world, tmp_path):
    new = edited(tmp_path, ("gpus: {guaranteed: 9, limit: 20}", "gpus: {guaranteed: 3, limit: 9}"))
    result = run("diff", str(tmp_path / "policy.yaml"), new, *world)
    assert result.exit_code == 1
    golden.check(GOLDEN / "policy-diff.txt", result.stdout)
    printed = json.loads(run("diff", str(tmp_path / "policy.yaml"), new, *world, "-o", "json").stdout)
    changed = {
        change["pod"]: (change["old"]["outcome"], change["new"]["outcome"], change["new"]["again"])
        for change in printed["changes"]
    }
    assert changed == {
        "nlp/llm": ("guaranteed", "preemptible", "refused"),
        "nlp/next": ("preemptible", "preemptible", "refused"),
        "nlp/sweep-0": ("preemptible", "guaranteed", "allowed"),
    }


def test_the_same_policy_changes_nothing(run, world, tmp_path):
    result = run("diff", str(tmp_path / "policy.yaml"), str(tmp_path / "policy.yaml"), *world)
    assert (result.exit_code, result.stdout) == (0, "14 GPU pods: nothing changes\n")


QUEUE = HEADER + (
    "teams: [{name: vision, namespaces: [vision], gpus: {guaranteed: 1, limit: %s}, onLimit: queue, onNoRoom: queue}]"
)


@pytest.fixture
def diff_with_a_line(run, tmp_path):
    """The changes between two limits, of a cluster where two pods run and two wait in line."""
    gated = [
        b.pod(f"next-{n}", schedulingGates=[{"name": "fairgate.dev/queue"}], labels={"fairgate.dev/team": "vision"})
        for n in range(2)
    ]
    running = [sample_world.pod(name, gpus=1, node="gpu-1") for name in ("a", "b")]
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8), *running, *gated])

    def of(old, new):
        for name, limit in (("old", old), ("new", new)):
            (tmp_path / f"{name}.yaml").write_text(QUEUE % limit)
        files = [str(tmp_path / name) for name in ("old.yaml", "new.yaml")]
        done = run("diff", *files, "--world", str(tmp_path / "world.json"), "-o", "json")
        changes = json.loads(done.stdout)["changes"]
        assert done.exit_code == (1 if changes else 0)
        return {
            each["pod"].removeprefix("vision/"): (each["old"]["outcome"], each["new"]["outcome"]) for each in changes
        }

    return of


def test_an_edit_says_what_becomes_of_the_pods_in_line(diff_with_a_line):
    assert diff_with_a_line(4, 4) == {}
    assert diff_with_a_line(2, 3) == {"next-0": ("queued", "preemptible")}
    assert diff_with_a_line(4, 1) == {"b": ("preemptible", "preemptible")}, "it would wait if it were created again"


EDITED = (
    HEADER
    + """
teams: [{name: TEAM, namespaces: [vision], gpus: {guaranteed: 4, limit: 8}, department: research}]
departments: [{name: research, gpus: {guaranteed: 4, limit: 8}}]
pools: [{name: a100, nodeSelector: {nvidia.com/gpu.product: A100}}, {name: more, nodeSelector: {more: "yes"}}]
"""
)


def test_an_edit_is_predicted_as_a_reload_carries_it_out(run, tmp_path):
    """A pool that goes changes no tier, a new name moves charges and no label, and a department may be full at once."""
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"}
    pods = [b.pod(f"p{n}", namespace="vision", gpus=2, node="gpu-1", labels=labels) for n in range(3)]
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8, model="A100"), *pods])
    old = EDITED.replace("TEAM", "vision")
    (tmp_path / "old.yaml").write_text(old)

    def of(text):
        (tmp_path / "new.yaml").write_text(text)
        files = [str(tmp_path / name) for name in ("old.yaml", "new.yaml")]
        done = run("diff", *files, "--world", str(tmp_path / "world.json"))
        return done.exit_code, done.stdout

    status, shown = of(old.replace("{name: a100, nodeSelector: {nvidia.com/gpu.product: A100}}, ", ""))
    assert (status, "3 refused if created again" in shown, "to guaranteed" in shown) == (1, True, False), shown
    status, shown = of(EDITED.replace("TEAM", "language"))
    assert status == 1
    assert "guaranteed, team vision   guaranteed, team language" in shown
    assert "Running pods that are charged to another team keep their label fairgate.dev/team" in shown
    assert shown.endswith("3 GPU pods: 3 to another team\n")
    status, shown = of(old.replace("guaranteed: 4, limit: 8}}]\npools", "guaranteed: 4, limit: 6}}]\npools"))
    want = "no GPU is left under the limit of department research: 6 of 6 GPUs in use\n3 GPU pods: nothing changes\n"
    assert (status, shown) == (1, want)


def test_an_edit_says_what_changes_of_moves(run, world, tmp_path):
    old = (tmp_path / "policy.yaml").read_text()
    (tmp_path / "new.yaml").write_text(f'{old}\ndefragment: {{window: "02:00-05:00", lostPerGpu: unlimited}}\n')
    files = str(tmp_path / "policy.yaml"), str(tmp_path / "new.yaml")
    printed = run("diff", *files, *world).stdout.splitlines()
    assert printed[-2:] == [
        "defragment: window 02:00-05:00 UTC, was not set",
        "defragment: lostPerGpu unlimited, was 3600 s",
    ]
    assert json.loads(run("diff", *files, *world, "-o", "json").stdout)["moves"] == [
        text.removeprefix("defragment: ") for text in printed[-2:]
    ]


def test_an_invalid_edit_is_reported_with_its_problems(run, world, tmp_path):
    (tmp_path / "bad.yaml").write_text(HEADER + "teams: [{name: a}]")
    result = run("diff", str(tmp_path / "policy.yaml"), str(tmp_path / "bad.yaml"), *world)
    assert result.exit_code == 2
    assert "teams[0].namespaces" in result.stdout


def test_a_limit_of_the_pods_that_change(run, world, tmp_path):
    new = edited(tmp_path, ("gpus: {guaranteed: 9, limit: 20}", "gpus: {guaranteed: 3, limit: 9}"))
    printed = run("diff", str(tmp_path / "policy.yaml"), new, *world, "--limit", "1").stdout.splitlines()
    assert [line.split()[0] for line in printed[1:2]] == ["nlp/llm"]
    assert "and 2 more pods: --limit or -o json shows them" in printed
    assert (
        printed[-1]
        == "14 GPU pods: 1 guaranteed to preemptible; 1 preemptible to guaranteed; 1 refused if created again"
    )


def test_a_pod_that_is_no_longer_counted_has_no_team_and_no_pool(run, world, tmp_path):
    new = edited(tmp_path, ('  nvidia.com/gpu.shared: {gpus: "1/4"}\n', ""))
    printed = run("diff", str(tmp_path / "policy.yaml"), new, *world).stdout.splitlines()
    [row] = [line for line in printed if line.startswith("nlp/chat ")]
    assert " ".join(row.split()) == "nlp/chat 0.25 guaranteed, team nlp not counted"


TEAM = HEADER + "teams: [{name: NAME, namespaces: [NAME]}]\n"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, file, team in (("one", "a", "x"), ("one", "b", "y"), ("two", "a", "x")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{file}.yaml").write_text(TEAM.replace("NAME", team))
    return tmp_path


POLICIES = {
    "folders are policies of their own": (["one", "two"], ["one", "two"]),
    "files of one folder are one policy": (["one/a.yaml", "one/b.yaml"], ["one/a.yaml, one/b.yaml"]),
    "files of two folders are two": (["one/a.yaml", "two/a.yaml"], ["one/a.yaml", "two/a.yaml"]),
    "a file of a folder that is checked anyway": (["one/a.yaml", "one"], ["one"]),
}


@pytest.mark.parametrize("case", POLICIES)
@pytest.mark.usefixtures("folders")
def test_several_policies_are_checked_at_once(run, case):
    paths, want = POLICIES[case]
    result = run("check", *paths)
    assert result.exit_code == 0, result.output
    assert [line.removesuffix(": valid") for line in result.stdout.splitlines() if line.endswith(": valid")] == want


def test_files_that_are_one_policy_must_not_repeat_a_team(run, folders):
    (folders / "one" / "b.yaml").write_text(TEAM.replace("NAME", "x"))
    result = run("check", "one/a.yaml", "one/b.yaml")
    assert result.exit_code == 1
    assert "one/b.yaml:3: teams[0].name" in result.stdout
    assert result.stderr.endswith("in one/a.yaml, one/b.yaml\n")


def test_the_worst_of_several_policies_decides_and_all_are_checked(run, folders):
    (folders / "one" / "b.yaml").write_text("x: [")
    result = run("check", "one", "gone", "two")
    assert result.exit_code == 2
    assert "one/b.yaml:1" in result.stdout
    assert "two: valid" in result.stdout
    assert "cannot read gone" in result.stderr
    assert run("check", "one", "two").exit_code == 1


def test_a_check_against_a_large_cluster_is_short(run, tmp_path):
    nodes = [b.node(f"gpu-{number}", gpus=8, model=("A100", "H100")[number % 2]) for number in range(5000)]
    pods = [b.pod(f"p{number}", namespace=f"ns-{number}", gpus=1, node=f"gpu-{number}") for number in range(300)]
    sample_world.write(tmp_path, [*nodes, b.node("cpu-0", gpus=None), *pods])
    result = run("check", str(tmp_path / "policy.yaml"), "--world", str(tmp_path / "world.json"))
    lines = result.stdout.splitlines()
    assert len(lines) < 20
    assert max(map(len, lines)) < 500
    assert "300 namespaces have 300 pods with GPUs but no team" in result.stdout
    assert "kubectl taint nodes -l 'nvidia.com/gpu.product in (A100,H100)' nvidia.com/gpu=present" in result.stdout


@pytest.mark.parametrize(
    ("groups", "want"),
    [(["apps"], ""), (["apps", "kueue.x-k8s.io"], "note: Kueue is installed: docs/tasks/coexistence.md#kueue\n")],
    ids=["none", "Kueue"],
)
async def test_a_check_against_a_cluster_notes_other_queues_and_fails_for_none(run, tmp_path, groups, want):
    (tmp_path / "policy.yaml").write_text(f"{HEADER}teams: [{{name: a, namespaces: [a]}}]\n")
    async with FakeApi(groups=groups).serving() as api:
        api.put("/api/v1/namespaces", "a")
        config = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        words = (
            "check",
            str(tmp_path / "policy.yaml"),
            "--cluster",
            "--kubeconfig",
            str(config),
            "--fail-on",
            "warning",
        )
        result = await asyncio.to_thread(run, *words)
        assert (result.exit_code, result.stderr) == (0, want), result.stdout
        api.missing.add("/apis")
        failed = await asyncio.to_thread(run, *words)
        assert failed.exit_code == 2
        assert failed.stderr.startswith("fairgate: cannot get apis: 404")


def test_namespaces_that_are_exempt_by_default_are_named(run, tmp_path):
    validators = [
        b.pod(f"validator-{phase.lower()}", namespace="gpu-operator", gpus=1, node="gpu-0", phase=phase)
        for phase in ("Running", "Succeeded")
    ]
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("gpu-operator", "kube-amd-gpu", "vision")
    ]
    sample_world.write(tmp_path, [b.node("gpu-0", gpus=8), *namespaces, *validators])
    arguments = ("check", str(tmp_path / "policy.yaml"), "--world", str(tmp_path / "world.json"))
    line = "  exempt gpu-operator: 2 pods with GPUs (1 of them ended); kube-amd-gpu; by default (exempt.operators)"
    assert line in run(*arguments).stdout.splitlines()
    policy = tmp_path / "policy.yaml"
    policy.write_text(policy.read_text() + "\nexempt: {namespaces: [gpu-operator, kube-amd-gpu]}\n")
    assert "by default" not in run(*arguments).stdout
    policy.write_text(
        policy.read_text().replace("exempt: {namespaces: [gpu-operator, kube-amd-gpu]}", "exempt: {operators: false}")
    )
    refused = "namespace gpu-operator has 2 pods with GPUs (1 of them ended) but no team: new pods are refused"
    assert refused in run(*arguments).stdout


def test_a_limit_of_problems_says_how_many_more_there_are(run, tmp_path):
    teams = "".join(f"  - {{name: t{number}}}\n" for number in range(9))
    (tmp_path / "a.yaml").write_text(f"{HEADER}teams:\n{teams}")
    result = run("check", str(tmp_path), "--limit", "2")
    *shown, more = result.stdout.splitlines()
    assert len(shown) == 2
    assert more == "and 7 more problems: --limit or a pipe shows them"
    assert result.stderr.startswith("9 problems in ")


def test_an_edit_of_messages_to_people_is_shown_and_changes_no_pod(run, world, tmp_path):
    old = "notify: {targets: [{name: a, url: 'https://a/'}, {name: b, url: 'https://b/'}]}"
    new = "notify: {cluster: x, targets: [{name: b, url: 'https://b/', interval: 1h}, {name: c, url: 'https://c/'}]}"
    folders = []
    for name, section in (("old", old), ("new", new)):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "p.yaml").write_text(f"{(tmp_path / 'policy.yaml').read_text()}\n{section}\n")
    result = run("diff", *map(str, folders), *world)
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (
        0,
        [
            "messages to people: target a no longer gets messages",
            "messages to people: target b changes: interval_seconds",
            "messages to people: target c is new",
            "messages to people: what is worth a message, or the name of the cluster, changes",
        ],
    )
    assert json.loads(run("diff", *map(str, folders), *world, "-o", "json").stdout)["changes"] == []


def test_an_edit_says_what_follows_for_idle_pods(run, tmp_path):
    idle = 'idle: {prometheus: {url: "http://p:9090"}, series: {job: dcgm}, actions: [%s]}\n'
    teams = "teams: [{name: vision, namespaces: [vision], gpus: {guaranteed: 4}}]\n"
    for name, actions in (("old", "report"), ("new", "report, evict")):
        (tmp_path / f"{name}.yaml").write_text(HEADER + teams + idle % actions)
    pod = sample_world.pod("lazy", gpus=1, node="gpu-1")
    pod["metadata"]["labels"] = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    pod["metadata"].setdefault("annotations", {})["fairgate.dev/idle-since"] = "2026-01-01T00:00:00Z"
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8), pod])
    files, world = [str(tmp_path / f"{name}.yaml") for name in ("old", "new")], str(tmp_path / "world.json")
    done = run("diff", *files, "--world", world)
    assert done.exit_code == 1
    assert "vision/lazy does not use its GPUs: report followed, and evict, report would" in done.stdout
    assert run("diff", files[0], files[0], "--world", world).exit_code == 0
