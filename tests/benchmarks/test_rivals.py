"""The comparison with other systems: turns, tables, what it says of systems that cannot do a work, and a small run."""

from collections import Counter

import pytest

from benchmarks import rivals
from benchmarks.side_by_side.loads import Work
from benchmarks.side_by_side.run import Reading, api_writes
from benchmarks.side_by_side.systems import SYSTEMS, skipped
from benchmarks.side_by_side.tables import tables
from benchmarks.turns import in_turn

METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="pods",subresource="binding",verb="POST"} 7
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="PATCH"} 2
apiserver_request_total{code="201",dry_run="",resource="pods",subresource="",verb="POST"} 3
apiserver_request_total{code="201",dry_run="All",resource="pods",subresource="",verb="POST"} 100
apiserver_request_total{code="409",dry_run="",resource="pods",subresource="",verb="PATCH"} 100
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="GET"} 100
apiserver_request_total{code="200",dry_run="",resource="leases",subresource="",verb="PUT"} 100
apiserver_request_total{code="201",dry_run="",resource="subjectaccessreviews",subresource="",verb="POST"} 100
"""


def reading(**more):
    parts = {"API server": 8.0, "scheduler": 2.0, "controllers": 1.0, "itself": 3.0}
    known = {"pods": 4, "done": 4, "seconds": 5.0, "milliseconds": parts, "writes": Counter(pods=8, events=4)}
    return Reading(**known | {"waits": [1.0, 2.0]} | more)


def test_systems_take_turns_and_another_begins_in_each_round():
    names = [system.name for system in in_turn(list(SYSTEMS.values())[:3], 3)]
    assert names == ["stock", "fairgate", "kueue", "fairgate", "kueue", "stock", "kueue", "stock", "fairgate"]


def test_writes_that_were_carried_out_are_counted():
    assert api_writes(METRICS) == {"pods": 5, "pods/binding": 7}


def test_a_table_has_each_system_and_why_one_is_missing():
    lines = list(
        tables(
            Work.GANGS,
            {"stock": [], "fairgate": [reading(), reading(seconds=None, done=3)]},
            reasons={"stock": "cannot", "fairgate": ""},
            spread=lambda values: "/".join(f"{value:g}" for value in values),
        )
    )
    head, _, stock, ours = lines[1:5]
    cells = dict(zip(head.split(" | "), ours.split(" | "), strict=True))
    assert stock.startswith("| stock | cannot |")
    assert cells["all done, s"] == "5, given up at 3 of 4"
    assert cells["API server, CPU ms a pod"] == "8/8"
    assert cells["API writes a pod"] == "3/3"
    assert len({line.count("|") for line in lines[1:5]}) == 1
    assert lines[-1] == "fairgate, API writes a pod: pods 2.0, events 1.0"


@pytest.mark.parametrize("work", Work)
def test_a_table_of_every_work_can_be_made(work):
    slots = {name: [0.1] for name in ("freed to released", "freed to bound", "freed to running")}
    assert len(list(tables(work, {"x": [reading(slots=slots)]}, reasons={"x": ""}, spread=str))) == 6


def test_stock_kubernetes_has_no_gangs_and_no_departments():
    assert [work for work in Work if skipped(SYSTEMS["stock"], work)] == [Work.GANGS, Work.DEPARTMENTS]
    assert not any(skipped(SYSTEMS["fairgate"], work) for work in Work)


def test_an_unknown_system_is_an_error(capsys):
    with pytest.raises(SystemExit):
        rivals.main(["--systems", "stock,slurm"])
    assert "no system is called slurm; there are stock, fairgate, kueue, volcano" in capsys.readouterr().err


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.usefixtures("built_control_plane")
def test_a_small_run_of_stock_and_fairgate(capsys):
    rivals.main(["--systems", "stock,fairgate", "--jobs", "6", "--nodes", "1", "--quota", "8", "--seconds", "0.1"])
    printed = capsys.readouterr()
    assert "stock: 6 of 6 pods" in printed.err
    assert "fairgate: 6 of 6 pods" in printed.err
    assert printed.out.count("| fairgate |") == 1
