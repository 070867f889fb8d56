"""Traces from text: every way in which one can be wrong."""

import pytest

from webhook.addons.simulation.traces import load
from webhook.addons.simulation.traces.formats import TraceError
from webhook.addons.simulation.traces.load import read_trace
from webhook.core.model.constraints import Tier


def found(*lines, **more):
    return read_trace([f"{line}\n" for line in lines], name="t.csv", **more)


def read(*lines, **more):
    return found(*lines, **more).rows


def problems(*lines, **more):
    with pytest.raises(TraceError) as caught:
        read(*lines, **more)
    return list(caught.value.problems)


def test_fairgates_own_columns():
    head = "name,team,gpus,created,seconds,gpu_milli,cpu,memory,model,gang,pods,priority,tier,user"
    [row] = read(head, "train,vision,4,2026-11-23 08:00:00,3600,,0.5,8Gi,H100|A100,g,2,5,guaranteed,ann")
    assert (row.name, row.team, row.gpus, row.seconds, row.line) == ("train", "vision", 4, 3600, 2)
    assert (row.created, row.milli, row.cpu, row.memory) == (1795420800, 1000, 500, 8 << 30)
    assert (row.models, row.gang, row.pods, row.priority) == (("H100", "A100"), "g", 2, 5)
    assert (row.tier, row.user) == (Tier.GUARANTEED, "ann")


def test_the_least_that_a_table_needs():
    [row] = read("gpus,created,seconds", "1,0,60")
    assert (row.name, row.pods, row.milli, row.team, row.namespace) == ("task-2", 1, 1000, "", "")


@pytest.mark.parametrize("lines", [("gpus", "1"), ("gpus,created,seconds", "1,,")])
def test_tasks_without_times_are_for_a_drawn_load(lines):
    assert [row.seconds for row in read(*lines, needs_times=False)] == [0]
    [problem] = problems(*lines)
    assert problem.endswith(("created, seconds; found gpus; or --load, which draws the times", "which draws times"))


def test_of_tasks_with_and_without_times_those_without_are_left_out_of_a_load():
    drawn = found("gpus,seconds", "1,60", "2,", needs_times=False)
    assert ([row.gpus for row in drawn.rows], drawn.left_out) == ([1], {"tasks without a run time": 1})


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param([], "t.csv: is empty; expected a header and a line for each task", id="an empty file"),
        pytest.param(["gpus,created,seconds"], "t.csv: has no task", id="a header alone"),
        pytest.param(["a,b", "1,2"], "t.csv:1: columns are missing: gpus, created, seconds; found a, b", id="foreign"),
        pytest.param(
            ["gpus,seconds", "1,2"],
            "t.csv:1: columns are missing: created; found gpus, seconds; or --load",
            id="a column is missing",
        ),
        pytest.param(
            ["gpus,created,seconds", "1,0,-5"], "t.csv:2: seconds: got '-5'; expected a number from 0", id="-5 s"
        ),
        pytest.param(["gpus,created,seconds", "-1,0,5"], "t.csv:2: gpus: got '-1'; expected a number", id="-1 GPU"),
        pytest.param(["gpus,created,seconds", f"{10**18},0,5"], "t.csv:2: gpus: got '1000000000000000000'", id="10^18"),
        pytest.param(
            ["gpus,created,seconds,pods", f"1,0,5,{10**18}"], "t.csv:2: pods: got '1000000", id="10^18 members"
        ),
        pytest.param(
            ["gpus,created,seconds", "1,0,1e999"], "t.csv:2: seconds: got '1e999'; expected a number", id="inf"
        ),
        pytest.param(["gpus,created,seconds", "1,0,nan"], "t.csv:2: seconds: got 'nan'; expected a number", id="nan"),
        pytest.param(["gpus,created,seconds", f"{'9' * 200},0,5"], "t.csv:2: gpus: got '999", id="200 digits"),
        pytest.param(
            ["gpus,created,seconds", "1,noon,5"], "t.csv:2: created: got 'noon'; expected seconds, or", id="noon"
        ),
        pytest.param(["gpus,created,seconds", f"1,{10**18},5"], "t.csv:2: created: got '1000", id="a time of 10^18"),
        pytest.param(["gpus,created,seconds", "1,,5"], "t.csv:2: created: got nothing", id="no time"),
        pytest.param(["gpus,created,seconds,tier", "1,0,5,x"], "t.csv:2: tier: got 'x'; expected", id="a tier"),
        pytest.param(["gpus,created,seconds", "1,0,5,6"], "t.csv:2: has more cells than the header", id="more cells"),
        pytest.param(["gpus,created,seconds", '1,0,"5'], "t.csv:2: not a table", id="cut inside of a quote"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines, want):
    assert problems(*lines)[0].startswith(want)


def test_every_problem_is_said_at_once_up_to_twenty():
    told = problems("gpus,created,seconds", *["x,y,z"] * 30)
    assert len(told) == load.MAX_PROBLEMS + 1
    assert told[2].startswith("t.csv:2: seconds: got 'z'")
    assert told[-1] == "t.csv: and maybe more"


def test_a_trace_that_is_too_long(monkeypatch):
    monkeypatch.setattr(load, "MAX_ROWS", 2)
    assert problems("gpus,created,seconds", *["1,0,5"] * 3) == ["t.csv:4: more than 2 tasks; cut the trace first"]


def test_control_characters_of_a_trace_are_shown_escaped():
    assert "\x1b" not in problems("gpus,created,seconds", "\x1b[31m,0,5")[0]
