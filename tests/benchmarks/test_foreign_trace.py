"""Published traces become tables that `fairgate simulate` reads."""

import io
import json

import pytest

from benchmarks.foreign_trace import own_table
from webhook.addons.simulation.traces.formats import NodeRow, read_nodes
from webhook.addons.simulation.traces.load import read_trace

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def table(*lines):
    return list(own_table(io.StringIO("".join(f"{line}\n" for line in lines))))


def rows(*lines, **more):
    return read_trace(table(*lines), name="t.csv", **more).rows


def test_openbs_tasks():
    first, second = rows(OPENB, "p0,12000,16384,1,460,V100M32|P100,LS,Running,100,500,200", "p1,1,1,0,0,,,,7,9,")
    assert (first.gpus, first.milli, first.created, first.seconds) == (1, 460, 100, 300)
    assert (first.cpu, first.memory, first.models) == (12000, 16384 << 20, ("V100M32", "P100"))
    assert (second.gpus, second.seconds, second.cpu) == (0, 2, 1)


def test_openbs_list_without_times_is_for_a_drawn_load():
    assert [
        each.gpus for each in rows("name,cpu_milli,memory_mib,num_gpu,gpu_milli", "p0,1,1,2,1000", needs_times=False)
    ] == [2]


def test_openbs_nodes():
    found = read_nodes(table("sn,cpu_milli,memory_mib,gpu,model", "a,64000,1024,2,P100"), name="n.csv")
    assert found == [NodeRow("a", 2, "P100", 64000, 1 << 30)]


def test_a_job_of_helios_that_is_larger_than_a_node_becomes_equal_pods_and_jobs_on_cpus_none():
    job = "7,u1,vc9,18,64,2,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:10,2020-04-01 01:00:10,3600,10"
    [row] = rows(HELIOS, job, job.replace("vc9,18", "vc9,0"))
    assert (row.name, row.team, row.user, row.gpus, row.pods, row.seconds) == ("7", "vc9", "u1", 6, 3, 3600)


def test_phillys_jobs_run_as_long_as_their_attempts_and_those_that_never_ran_are_left_out():
    attempt = {"start_time": "2017-10-09 07:10:00", "end_time": "2017-10-09 07:20:00"}
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    job = {"jobid": "j", "vc": "v", "user": "u", "submitted_time": "2017-10-09 07:00:00"}
    attempts = [{**attempt, "detail": detail}, attempt, {"start_time": None}]
    [row] = rows(json.dumps([{**job, "attempts": attempts}, {**job, "attempts": []}]))
    assert (row.gpus, row.pods, row.seconds, row.team) == (3, 1, 1200, "v")


def test_another_table_is_refused():
    with pytest.raises(ValueError, match="no known trace: 'a,b'"):
        table("a,b", "1,2")
