"""Traces from text: each format that people have, and every way in which one can be wrong."""

import json

import pytest

from webhook.addons.simulation.traces import load
from webhook.addons.simulation.traces.formats import TraceError
from webhook.addons.simulation.traces.load import read_philly, read_trace
from webhook.core.model.constraints import Tier

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


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


def test_openbs_columns():
    first, second = read(OPENB, "p0,12000,16384,1,460,V100M32|P100,LS,Running,100,500,200", "p1,1,1,0,0,,,,7,9,")
    assert (first.gpus, first.milli, first.created, first.seconds) == (1, 460, 100, 300)
    assert (first.cpu, first.memory, first.models) == (12000, 16384 << 20, ("V100M32", "P100"))
    assert (second.gpus, second.seconds) == (0, 2)


def test_openbs_list_without_times_is_only_for_a_drawn_load():
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    assert [row.gpus for row in read(head, "p0,1,1,2,1000", needs_times=False)] == [2]
    [problem] = problems(head, "p0,1,1,2,1000")
    assert problem.startswith("t.csv:1: openb: columns are missing: creation_time, deletion_time, or --load")


def test_openbs_tasks_without_times_are_no_tasks_of_zero_seconds():
    timed, untimed = "p0,1,1,1,1000,,,,0,50,", "p1,1,1,1,1000,,,,,,"
    [problem] = problems(OPENB, timed, untimed)
    assert problem.startswith("t.csv:3: creation_time and deletion_time: got nothing; expected seconds or a date")
    drawn = found(OPENB, timed, untimed, needs_times=False)
    assert ([row.name for row in drawn.rows], drawn.left_out) == (["p0"], {"tasks without a run time": 1})


def test_fairgates_list_without_times_is_for_a_drawn_load():
    assert [row.seconds for row in read("gpus,seconds", "1,60", needs_times=False)] == [60]


def test_helios_columns_without_jobs_on_cpus():
    job = "7,u1,vc9,16,64,2,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:10,2020-04-01 01:00:10,3600,10"
    helios = found(HELIOS, job, job.replace("vc9,16", "vc9,0"))
    [row] = helios.rows
    assert helios.left_out == {"jobs without GPUs": 1}
    assert (row.name, row.team, row.user, row.gpus, row.seconds, row.is_job) == ("7", "vc9", "u1", 16, 3600, True)


def test_phillys_job_log():
    attempt = {"start_time": "2017-10-09 07:10:00", "end_time": "2017-10-09 07:20:00"}
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    job = {"jobid": "j", "vc": "v", "user": "u", "submitted_time": "2017-10-09 07:00:00"}
    unstarted = {**job, "attempts": []}
    philly = read_philly(json.dumps([{**job, "attempts": [{**attempt, "detail": detail}]}, unstarted]), name="log")
    [row] = philly.rows
    assert philly.left_out == {"jobs without an attempt that has GPUs, a start and an end": 1}
    assert (row.gpus, row.seconds, row.team, row.is_job) == (3, 600, "v", True)


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param([], "t.csv: is empty; expected a header and a line for each task", id="an empty file"),
        pytest.param(["gpus,created,seconds"], "t.csv: has no task", id="a header alone"),
        pytest.param(
            ["a,b", "1,2"], "t.csv:1: the columns are of no known format: a, b; expected those of", id="foreign"
        ),
        pytest.param(
            ["gpus,seconds", "1,2"], "t.csv:1: Fairgate: columns are missing: created", id="a column is missing"
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
        pytest.param([OPENB, "p,1,1,1,1000,,,,100,50,"], "t.csv:2: times run backwards: created 100", id="backwards"),
        pytest.param(
            [OPENB, "p,1,1,1,1000,,,,,50,"], "t.csv:2: creation_time and deletion_time: got", id="no creation"
        ),
        pytest.param(
            [HELIOS, "1,u,v,1,1,1,X,2020-04-02 00:00:00,2020-04-01 00:00:00,2020-04-03 00:00:00,5,0"],
            "t.csv:2: times run backwards",
            id="a start before its submission",
        ),
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


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("[", "log: not valid JSON", id="cut"),
        pytest.param('{"a": 1}', "log: expected a list of at most", id="an object"),
        pytest.param("[]", "log: has no job that used GPUs", id="no job"),
        pytest.param('[{"submitted_time": "x"}]', "log: job 1: submitted_time: got 'x'", id="no date"),
        pytest.param('[{"submitted_time": "2017-10-09 07:00:00", "attempts": [3]}]', "log: job 1: ", id="an attempt"),
    ],
)
def test_what_is_wrong_with_phillys_log(text, want):
    with pytest.raises(TraceError) as caught:
        read_philly(text, name="log")
    assert caught.value.problems[0].startswith(want)


def test_control_characters_of_a_trace_are_shown_escaped():
    assert "\x1b" not in problems("gpus,created,seconds", "\x1b[31m,0,5")[0]
