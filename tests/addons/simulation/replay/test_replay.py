"""`fairgate replay`: the pods of a history, decided again under another policy, the same each time."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.addons.history import recorded
from webhook.addons.history.store import Batch, HistoryStore, PodRow, Trace
from webhook.cli.main import main

KEPT = Path(__file__).parents[2] / "history" / "kept" / "format-1.db"


@pytest.fixture
def path(tmp_path):
    return recorded.write(tmp_path / "history.db")


def policy(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "teams.yaml").write_text(text)
    return folder


def run(*arguments):
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def found(*arguments):
    return json.loads(run(*arguments, "-o", "json").stdout)


def by_team(report, side):
    return {each["team"]: each[side] for each in report["teams"]}


def test_the_recorded_policy_makes_no_difference_to_itself(path, tmp_path):
    same = policy(tmp_path / "same", recorded.POLICY)
    done = run(path, "--policy", same)
    assert done.exit_code == 0, done.output
    assert "5 pods from 2023-11-14T22:15:00Z to 2023-11-14T22:45:00Z: no pod would get something else" in done.output
    old = by_team(found(path, "--policy", same), "old")
    assert (old["vision"]["guaranteed"], old["vision"]["preemptible"]) == (2, 1)
    assert (old["nlp"]["refused"], old["nlp"]["guaranteed"], old["nlp"]["notStarted"]) == (1, 1, 1)


def test_a_lower_limit_shows_the_pods_that_it_refuses(path, tmp_path):
    lower = policy(tmp_path / "lower", recorded.POLICY.replace("limit: 16", "limit: 8"))
    done = run(path, "--policy", lower)
    assert done.exit_code == 1
    assert "vision/sweep-0 (4 GPUs): preemptible → refused, guaranteed\n" in done.output  # no reason: it started later
    report = found(path, "--policy", lower)
    assert by_team(report, "new")["vision"]["refused"] == 1
    assert by_team(report, "new")["vision"]["waitedHours"] > 0
    assert by_team(report, "new")["nlp"] == by_team(report, "old")["nlp"]


def test_a_queue_shows_who_would_wait_instead(path, tmp_path):
    queue = policy(tmp_path / "queue", recorded.POLICY.replace("limit: 16}", "limit: 8}\n    onLimit: queue"))
    assert by_team(found(path, "--policy", queue), "new")["vision"]["queued"] == 1


def test_a_pod_that_was_refused_then_is_admitted_by_a_policy_that_allows_it(tmp_path):
    larger = policy(tmp_path / "larger", recorded.POLICY.replace("limit: 8}", "limit: 32}"))
    objects = (recorded.node("n0", gpus=16), recorded.node("n1"))
    wide = recorded.write(tmp_path / "wide.db", objects=objects)
    new = by_team(found(wide, "--policy", larger), "new")["nlp"]
    assert (new["refused"], new["preemptible"], new["notStarted"]) == (0, 1, 0)


def test_two_policies_are_compared_without_the_recorded_one(tmp_path):
    path = recorded.write(tmp_path / "h.db", policy=None)
    folder = policy(tmp_path / "p", recorded.POLICY)
    assert run(path, "--policy", folder, "--policy", folder).exit_code == 0
    done = run(path, "--policy", folder)
    assert done.exit_code == 2
    assert "the history has no policy: give --policy NEW --policy OLD" in done.output


def test_the_same_history_gives_the_same_answer_from_one_file_or_several(path, tmp_path):
    lower = policy(tmp_path / "lower", recorded.POLICY.replace("limit: 16", "limit: 8"))
    other = tmp_path / "other.db"
    shutil.copy(path, other)
    outputs = {run(*files, "--policy", lower).output for files in ((path,), (path,), (path, other), (other, path))}
    assert len(outputs) == 1


def test_a_replica_that_saw_no_end_does_not_shorten_a_pod(tmp_path):
    rows = [recorded.came("vision", "train-0", 8, at=0, seconds=1200), recorded.came("vision", "next", 8, at=1000)]
    whole = recorded.write(tmp_path / "whole.db", rows)
    blind = recorded.write(tmp_path / "blind.db", [rows[0]._replace(ended=rows[0].bound + 1)])
    folder = policy(tmp_path / "p", recorded.POLICY)
    both = found(blind, whole, "--policy", folder, "--policy", folder)
    assert by_team(both, "new")["vision"]["preemptible"] == 1


def test_what_was_is_what_happened_and_only_differences_of_the_policies_are_shown(tmp_path):
    """The old policy, decided again, would evict the borrower; it ran to its end, and another one was evicted."""
    borrowed = [
        recorded.came("vision", f"borrowed-{n}", 8, at=n, node=f"n{n}")._replace(tier="preemptible") for n in range(2)
    ]
    rows = [*borrowed, recorded.came("nlp", "owner", 8, at=300)._replace(bound=0.0, ended=0.0)]
    text = recorded.POLICY.replace("guaranteed: 8, limit: 16", "guaranteed: 0, limit: 16")
    path = recorded.write(tmp_path / "h.db", [rows[0]._replace(code="Evicted"), *rows[1:]], policy=text)
    old = policy(tmp_path / "old", text)
    new = policy(tmp_path / "new", text.replace("guaranteed: 8, limit: 8", "guaranteed: 0, limit: 8"))
    decided = found(path, "--policy", new, "--policy", old)
    assert by_team(decided, "old")["vision"]["evicted"] == 1
    happened = found(path, "--policy", new)
    assert by_team(happened, "old")["vision"]["evicted"] == 1
    assert by_team(happened, "old")["nlp"]["notStarted"] == 1
    was = {each["pod"]: each["old"] for each in happened["changes"]}
    assert was.get("vision/borrowed-1", "preemptible") == "preemptible", "it was never evicted"
    assert was.get("vision/borrowed-0", "preemptible, evicted") == "preemptible, evicted"
    assert found(path, "--policy", old)["changes"] == []


def test_what_cannot_be_decided_again_is_counted(tmp_path):
    rows = [
        *recorded.PODS,
        recorded.came("vision", "huge", 1, at=5)._replace(object=""),
        recorded.came("vision", "broken", 1, at=5)._replace(object="{"),
        recorded.came("vision", "strange", 1, at=5)._replace(object='{"spec": 3}'),
    ]
    path = recorded.write(tmp_path / "h.db", rows)
    report = found(path, "--policy", policy(tmp_path / "p", recorded.POLICY))
    assert report["leftOut"] == {"pods that cannot be read": 2, "pods that were too large to be recorded": 1}


def test_a_history_of_the_first_format_is_read(tmp_path):
    done = run(KEPT, "--policy", policy(tmp_path / "p", recorded.POLICY))
    assert done.exit_code == 0, done.output
    usage = CliRunner().invoke(
        main, ["usage", "--history", str(KEPT), "--since", "2023-11-14", "--until", "2023-11-15"]
    )
    assert "vision        4.00" in usage.output


@pytest.mark.parametrize("part", [0.6, 0.01, 0])
def test_a_truncated_history_is_refused_and_left_as_it_is(path, tmp_path, part):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    done = run(path, "--policy", policy(tmp_path / "p", recorded.POLICY))
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert path.read_bytes() == content[: int(len(content) * part)]


def test_bad_policies_times_and_empty_histories_are_said_in_a_line(path, tmp_path):
    empty = tmp_path / "empty.db"
    HistoryStore(empty).close()
    good = policy(tmp_path / "p", recorded.POLICY)
    for arguments, why in (
        ((empty, "--policy", good), "is empty: nothing has been recorded in it yet"),
        ((path, "--policy", policy(tmp_path / "bad", "kind: Policy\nteams: 3\n")), "teams"),
        ((path, "--policy", tmp_path / "nothing"), "nothing"),
        ((path, "--policy", good, "--since", "1h"), "nothing is recorded in this time: the history is from 2023-11-14"),
        ((path, *("--policy", good) * 3), "give one policy, or two: got 3"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, done.output
        assert why in done.output


def test_a_name_cannot_control_a_terminal(tmp_path):
    row = recorded.came("vision", "train", 32, at=0)._replace(name="\x1b[2Jtrain")
    path = recorded.write(tmp_path / "h.db", [row])
    small = policy(tmp_path / "p", recorded.POLICY.replace("limit: 16", "limit: 40"))
    assert "\x1b" not in run(path, "--policy", small).output


def test_rows_of_a_tenant_who_forges_what_is_recorded_do_no_harm(tmp_path):
    rows = [
        PodRow(f"u{n}", "vision", "x" * 200, "Job/" + "y" * 190, "vision", gpus=1.0, created=float(n), object=text)
        for n, text in enumerate(("[]", "null", '"text"', "{" * 10_000, '{"spec": {"priority": "high"}}'))
    ]
    path = tmp_path / "h.db"
    recorded.write(path)
    store = HistoryStore(path)
    store.write(Batch([], recorded.UNTIL, Trace(tuple(row._replace(created=recorded.T0 + 1) for row in rows))))
    store.close()
    report = found(path, "--policy", policy(tmp_path / "p", recorded.POLICY))
    assert sum(report["leftOut"].values()) == len(rows)
