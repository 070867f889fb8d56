"""`fairgate status`: what is printed, in every layout, on every kind of terminal."""

import json
import signal
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests import builders as b
from tests import forks
from tests.cli import golden, sample_world
from tests.core.support import claims
from webhook.cli.main import main
from webhook.cli.status.report import GpuPicture, StatusReport, report_of
from webhook.cli.status.table import Look, to_lines, to_screenful
from webhook.cli.world_source import WorldObjects, world_of
from webhook.core.explain.team_rows import board_of
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.placement.rejecting_nodes import STRIKES, Rejection
from webhook.policy.watch import parse

GOLDEN = Path(__file__).parent / "golden"
POLICY = parse({"p.yaml": sample_world.POLICY.encode()}, origin="p")


@pytest.fixture(scope="module")
def board():
    return board_of(world_of(WorldObjects(tuple(sample_world.objects())), POLICY, name="w"))


LAYOUTS = {
    "pipe": {},
    "80-columns": {"width": 80},
    "wide": {"width": 120, "is_wide": True},
    "ascii": {"width": 80, "is_plain": True},
}


def printed_as(board, look):
    return "".join(f"{line}\n" for line in to_lines(board, look, source="world w"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_device_view(name, board):
    printed = printed_as(board, Look(**LAYOUTS[name]))
    golden.check(GOLDEN / f"{name}.txt", printed)
    assert name == "pipe" or max(map(len, printed.splitlines())) <= LAYOUTS[name]["width"]
    assert name != "ascii" or printed.isascii()


def test_a_pods_row_is_complete(board):
    printed = printed_as(board, Look(is_wide=True))
    [row] = [line for line in printed.splitlines() if line.startswith("vision/eval ")]
    assert row.split() == ["vision/eval", "vision", "preemptible", "gpu-2", "gpu", "4"]


def test_partitions_of_a_taken_gpu_are_not_drawn_as_free():
    place = claims.partitioned()
    place.set_pod(claims.resident("a", claims.SHARING, node="n0"))
    board = board_of(place)
    lines = to_lines(board, Look(), source="")
    [drawn] = [line for line in lines if line.lstrip().startswith("mig ") and line.endswith("0/2")]
    assert drawn.split() == ["mig", "--", "0/2"]
    assert any(line.endswith("· free, - taken with others") for line in lines)
    report = report_of(board, [])
    assert [[device.shut for device in group.devices] for group in report.nodes[0].gpus] == [[0], [2]]


def test_color_changes_no_text(board):
    from rich.text import Text  # noqa: PLC0415

    coloured = printed_as(board, Look(width=80, is_colored=True))
    assert "\x1b[30;46mN" in coloured or "\x1b[30m\x1b[46m" in coloured
    plain = "\n".join(line.rstrip() for line in Text.from_ansi(coloured).plain.splitlines())
    assert plain + "\n" == (GOLDEN / "80-columns.txt").read_text()


def test_every_team_has_its_own_letter_while_letters_last():
    names = [f"team-{number}" for number in range(62)]
    letters = list(GpuPicture(names).letters.values())
    assert letters[:3] == ["t", "e", "a"]
    assert len({*letters[:60], *(each.upper() for each in letters[:60])}) == 120
    assert letters[60:] == ["#", "#"]
    assert list(GpuPicture(names, is_plain=True).letters.values())[26:] == ["#"] * 36


@pytest.fixture
def run(tmp_path):
    options = sample_world.write(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["status", *options, *words])


def test_json_and_yaml_agree(run):
    printed = json.loads(run("-o", "json").stdout)
    assert printed == yaml.safe_load(run("-o", "yaml").stdout)
    report = msgspec.convert(printed, StatusReport)
    vision = next(team for team in report.teams if team.name == "vision")
    assert (vision.guaranteed, vision.limit, vision.preemptible, vision.waiting) == ("12", "24", "4", "0")
    assert vision.holders[0].name == "vision/Job/train"
    assert {(row.resource, row.largest_pod, row.at_once) for row in report.free} >= {("nvidia.com/gpu", 5, 1)}
    [cordoned] = [node for node in report.nodes if node.state]
    assert (cordoned.name, cordoned.state) == ("gpu-4", "cordoned")


def test_the_source_is_printed_with_its_age(run, tmp_path):
    assert run().stdout.splitlines()[-1].startswith(f"world {tmp_path / 'world.json'}, ")


def services(number, *, ready=3):
    """Services of three pods and a minimum of two, by an autoscaler."""
    found = [b.node("gpu-1", gpus=99)]
    for each in range(number):
        pods = b.replicas(f"web{each}", 3, node="gpu-1", annotations={"fairgate.dev/decision": "{}"})
        for pod in pods[ready:]:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        found += [*pods, b.autoscaler(f"web{each}", minimum=2)]
    return found


def test_workloads_with_a_minimum_are_listed_each_with_what_it_means(tmp_path):
    run = CliRunner().invoke
    options = sample_world.write(tmp_path, [*services(1, ready=1), *services(25)[5:]])
    shown = run(main, ["status", *options]).stdout.splitlines()
    [heading] = [line for line in shown if line.startswith("workload ")]
    assert heading.split() == ["workload", "team", "minimum", "pods", "ready", "may", "go"]
    first = shown[shown.index(heading) + 1]
    assert first.split()[:6] == ["vision/Deployment/web0", "vision", "2", "3", "1", "0"]
    assert first.endswith("its workload has no more than its minimum of 2 ready: it is evicted after other pods")
    assert "+5 workloads: --limit or -o json shows them" in shown
    assert "vision/Deployment/web24 " in run(main, ["status", *options, "--limit", "25"]).stdout
    minimums = json.loads(run(main, ["status", *options, "-o", "json"]).stdout)["minimums"]
    assert len(minimums) == 25
    assert minimums[1] == {
        "workload": "vision/Deployment/web1",
        "team": "vision",
        "minimum": 2,
        "pods": 3,
        "ready": 3,
        "spare": 1,
        "state": "replicas ready: 3, minimum: 2; 1 may be evicted first",
    }


def test_a_screen_keeps_room_for_teams_and_nodes_beside_minimums():
    board = board_of(world_of(WorldObjects(tuple(services(20))), POLICY, name="w"))
    lines = to_screenful(board, Look(width=100), 24, source="world w")
    assert len(lines) <= 24
    assert lines[0].startswith("team")
    assert "+17 workloads" in lines


def test_without_a_minimum_there_is_no_such_table(run):
    assert "workload" not in run().stdout
    assert "minimums" not in json.loads(run("-o", "json").stdout)


def test_a_cluster_without_gpus_says_so(tmp_path):
    options = sample_world.write(tmp_path, [])
    assert "no node has GPUs that the policy counts" in CliRunner().invoke(main, ["status", *options]).stdout


@pytest.mark.parametrize("broken", ["policy.yaml", "world.json"])
def test_unreadable_sources_exit_with_2(run, tmp_path, broken):
    (tmp_path / broken).write_text("[")
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("fairgate: ")
    (tmp_path / broken).unlink()
    assert run().exit_code == 2


def test_a_world_and_a_cluster_exclude_each_other(run):
    assert run("--cluster").exit_code == 2


def test_watch_redraws_changes_until_it_is_interrupted(tmp_path):
    options = sample_world.write(tmp_path)
    out, err = tmp_path / "out", tmp_path / "err"
    watching = forks.start(
        "webhook", "status", *options, "--watch", "--interval", "0.1", "-o", "json", out=out, err=err
    )
    try:
        until(lambda: "gpu-10" in out.read_text())
        sample_world.write(tmp_path, [found for found in sample_world.objects() if found["kind"] == "Node"][:1])
        until(lambda: len(boards := out.read_text().split("\n}\n")) > 4 and "gpu-10" not in "".join(boards[-4:]))
        assert watching.poll() is None, "it runs until the signal"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=90) == 130
        assert err.read_text() == ""
    finally:
        watching.kill()


def until(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_node_that_rejects_pods_says_whose():
    world = world_of(WorldObjects(tuple(sample_world.objects())), POLICY, name="w")
    world.rejecting_nodes.tick(1_767_225_600)
    for number in range(STRIKES):
        made = Rejection(NodeName("gpu-2"), Namespace("vision"), Uid(f"u{number}"), 1_767_225_600, "InvalidNodeInfo")
        world.rejecting_nodes.note(made)
    board = board_of(world)
    printed = printed_as(board, Look(width=120))
    [row] = [line for line in printed.splitlines() if "rejects" in line]
    assert row.startswith("gpu-2")
    assert row.endswith("rejects pods of vision")
    report = msgspec.to_builtins(report_of(board, []))
    [node] = [each for each in report["nodes"] if "rejecting" in each]
    assert node["rejecting"] == [
        {"team": "vision", "rejections": 3, "reason": "InvalidNodeInfo", "until": "2026-01-01T00:05:00Z"}
    ]


def cluster_of(*, nodes, teams=2):
    policy = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams:\n" + "".join(
        f"  - {{name: team-{number}, namespaces: [ns-{number}], gpus: {{guaranteed: 8, limit: 16}}}}\n"
        for number in range(teams)
    )
    made = tuple(b.node(f"gpu-{number}", gpus=8) for number in range(nodes))
    return board_of(world_of(WorldObjects(made), parse({"p.yaml": policy.encode()}, origin="p"), name="w"))


def test_a_list_that_is_cut_says_how_much_more_there_is_and_keeps_its_total():
    lines = to_lines(cluster_of(nodes=40), Look(nodes=6), source="world w")
    assert [line for line in lines if line.startswith("gpu-")][-1].startswith("gpu-5 ")
    assert "+34 nodes: --limit or -o json shows them" in lines
    assert [line.split() for line in lines if line.startswith("total")] == [
        ["total", "16", "0", "0", "0", "0"],
        ["total", "0/320"],
    ]


@pytest.mark.parametrize("height", [16, 24, 60])
def test_a_screenful_keeps_the_summary_and_the_source(height):
    lines = to_screenful(cluster_of(nodes=40, teams=12), Look(width=80), height, source="world w")
    shown = [line for line in lines if line.startswith("gpu-")]
    assert len(lines) <= height
    assert lines[-1] == "world w"
    assert any("40 pods of 8" in line for line in lines), "what would fit now"
    assert f"+{40 - len(shown)} nodes" in lines
    assert bool(shown) == (height == 60)
    teams = [line for line in lines if line.startswith("team-") and line.endswith("  -")]
    assert (f"+{12 - len(teams)} teams" in lines) == (len(teams) < 12)


def test_a_limit_of_the_command_line(run):
    printed = run("--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in printed if line.startswith(("gpu-", "mig-", "t4-"))] == ["gpu-1", "gpu-2"]
    assert "+5 nodes: --limit or -o json shows them" in printed


def test_idle_pods_have_a_column_a_line_and_rows():
    objects = sample_world.objects()
    for each in objects:
        if each["kind"] == "Pod" and each["metadata"]["name"] == "eval":
            marks = each["metadata"].setdefault("annotations", {})
            marks["fairgate.dev/idle-since"] = "2026-01-01T00:00:00Z"
    text = sample_world.POLICY + 'idle: {prometheus: {url: "http://p:9090"}, series: {job: dcgm}}\n'
    world = world_of(WorldObjects(tuple(objects)), parse({"p.yaml": text.encode()}, origin="p"), name="w")
    board = board_of(world)
    printed = printed_as(board, Look())
    assert "unused" in printed.splitlines()[0]
    assert "1 pod of team vision does not use 4 GPUs: vision/eval" in printed
    report = report_of(board, [], idle_unknown="it answered 403")
    (row,) = report.idle
    assert (row.pod, row.team, row.tier, row.gpus, row.since) == (
        "vision/eval",
        "vision",
        "preemptible",
        "4",
        "2026-01-01T00:00:00Z",
    )
    assert report.idle_unknown == "it answered 403"
