"""A Job survives reclaim: its guaranteed pods continue, however many of its borrowed ones were evicted."""

import json
import time

import pytest

from tests.control_plane.minors import at_least
from tests.control_plane.objects import job
from tests.control_plane.workbench import list_pods, make_namespace, make_nodes, wait_for
from tests.scenarios.evictor import ask, evicted, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_reclaim_care import budget

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "4Gi"}
HOSTNAME = "kubernetes.io/hostname"
COUNTS_LATE = at_least("1.32") and not at_least("1.34")
"""The API server refuses a Job's status while it waits to replace pods (kubernetes#139428; later patches mend it)."""
RULE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def jobs(namespace, name=""):
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}".rstrip("/")


def running(cluster, namespace, **labels):
    """The pods that run, by UID, with their tiers."""
    found = [each for each in list_pods(cluster, namespace) if each["status"].get("phase") == "Running"]
    return {
        each["metadata"]["uid"]: each["metadata"]["labels"][TIER]
        for each in found
        if "deletionTimestamp" not in each["metadata"] and labels.items() <= each["metadata"]["labels"].items()
    }


def start(cluster, namespace, name, pods, *, restart="Never", **spec):
    made = job(name, pods=pods, gpus=1, **SIZE)
    made["spec"]["template"]["spec"]["restartPolicy"] = restart
    made["spec"] |= spec
    before = len(running(cluster, namespace))
    cluster.api.create(jobs(namespace), made)
    wait_for(cluster, lambda: len(running(cluster, namespace)) == before + pods, what=f"{pods} pods of {name} run")


def conditions(cluster, namespace, name):
    found = status(cluster, namespace, name).get("conditions", ())
    return [each["type"] for each in found if each["status"] == "True"]


def test_a_job_whose_borrowed_gpus_are_reclaimed_continues_on_its_guaranteed_ones(cluster):
    """Eight evictions are more than the six failures that a Job survives by default."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate):
        mine, theirs = fairgate.team_a, fairgate.team_b
        start(cluster, mine, "sweep", 40)
        before = running(cluster, mine)
        firm = {uid for uid, tier in before.items() if tier == "guaranteed"}
        assert len(firm) == 20
        ask(cluster, theirs, "b0", gpus=8)
        wait_bound(cluster, theirs, "b0")
        _wait_counted(cluster, mine, "sweep", left=32)
        assert firm <= running(cluster, mine).keys()
        assert conditions(cluster, mine, "sweep") == []
        assert status(cluster, mine, "sweep").get("failed", 0) == 0


def test_a_job_that_counts_evictions_loses_no_more_pods_than_it_survives_while_other_victims_exist(cluster):
    """Its borrowed pods are younger, and the cheaper victims; they are evicted once nothing else is left."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as evicting:
        mine, theirs = fairgate.team_a, fairgate.team_b
        others = fill(cluster, mine, 10, labels={TIER: "preemptible"}, nodeSelector={HOSTNAME: "node-3"})
        time.sleep(1.1)  # start times are in whole seconds
        cluster.kubectl("cordon", "node-2")
        start(cluster, mine, "counting", 20, restart="OnFailure", completions=30)
        cluster.kubectl("uncordon", "node-2")
        cluster.kubectl("patch", "job", "counting", "-n", mine, "-p", '{"spec": {"parallelism": 30}}')
        wait_for(cluster, lambda: len(running(cluster, mine)) == 40, what="the Job borrows node-2")
        ask(cluster, theirs, "b0", gpus=8)
        wait_bound(cluster, theirs, "b0")
        assert len(evicted(cluster, mine, others)) == 8
        assert len(running(cluster, mine, **{"job-name": "counting"})) == 30
        ask(cluster, theirs, "b1", gpus=8)
        wait_bound(cluster, theirs, "b1")
        assert [line.get("breaks_workloads") for line in evicting.said("plan")] == [False, True]


def test_deletions_that_override_a_budget_count_no_failure_of_the_job(cluster):
    make_nodes(cluster, 1)
    lending = "reclaim: {budgets: 1s}"
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=lending) as fairgate, evictor(fairgate) as evicting:
        mine, theirs = fairgate.team_a, fairgate.team_b
        made = job("kept", pods=10, gpus=1, labels={TIER: "preemptible", "app": "kept"}, **SIZE)
        cluster.api.create(jobs(mine), made)
        wait_for(cluster, lambda: len(running(cluster, mine)) == 10, what="the Job runs")
        budget(cluster, mine, "keep", {"app": "kept"})
        ask(cluster, theirs, "b", gpus=8)
        wait_bound(cluster, theirs, "b")
        assert [line["is_deleted"] for line in evicting.said("evicted")] == [True] * 8
        _wait_counted(cluster, mine, "kept", left=2)
        assert (status(cluster, mine, "kept").get("failed", 0), conditions(cluster, mine, "kept")) == (0, [])


def test_the_rule_is_added_where_possible_and_no_controller_reverts_it(cluster):
    make_nodes(cluster, 1)
    exempt = make_namespace(cluster, labels={"fairgate.dev/exempt": "true"})
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a

        def rules(name, namespace=mine):
            return spec(name, namespace).get("podFailurePolicy", {}).get("rules")

        def spec(name, namespace=mine):
            return cluster.api.get(jobs(namespace, name))["spec"]

        def generation(name):
            return cluster.api.get(jobs(mine, name))["metadata"]["generation"]

        def apply(made, *flags, namespace=mine):
            done = cluster.kubectl.run("apply", *flags, "-n", namespace, "-f", "-", stdin=json.dumps(made))
            assert done.returncode == 0, done.stderr
            return done.stderr + done.stdout

        plain = job("plain", gpus=1, **SIZE)
        assert "Warning" not in apply(plain)
        assert rules("plain") == [RULE]
        assert spec("plain")["podReplacementPolicy"] == "Failed"
        apply(plain)
        assert generation("plain") == 1

        own = job("own", gpus=1, **SIZE)
        exits = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
        own["spec"] |= {"podFailurePolicy": {"rules": [exits]}, "podReplacementPolicy": "Failed"}
        warning = "Job own: a first rule is added to its podFailurePolicy: evictions do not count as failures"
        assert f"Warning: {warning}" in apply(own)
        for flags in ((), ("--server-side", "--force-conflicts")):
            apply(own, *flags)
            (first, second) = rules("own")
            assert (first, second["action"], generation("own")) == (RULE, "FailJob", 1)

        left = job("left", gpus=1, **SIZE)
        left["metadata"]["annotations"] = {"fairgate.dev/job-evictions": "count"}
        apply(left)
        apply(job("no-gpu", **SIZE))
        apply(job("exempt", gpus=1, **SIZE), namespace=exempt)
        assert [rules("left"), rules("no-gpu"), rules("exempt", exempt)] == [None] * 3

        restarting = job("restarting", pods=30, gpus=1, **SIZE)
        restarting["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
        restarting["spec"]["suspend"] = True
        assert (
            "Warning: Job restarting: borrows up to 10 of 30 GPUs, and it fails after more than 6 evicted pods"
            in apply(restarting)
        )
        assert rules("restarting") is None

        schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("x", gpus=1, **SIZE)["spec"]}}
        nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": schedule}
        apply(nightly)
        cluster.kubectl("create", "job", "by-hand", "--from=cronjob/nightly", "-n", mine)
        assert rules("by-hand") == [RULE]


def status(cluster, namespace, name):
    return cluster.api.get(jobs(namespace, name))["status"]


def _wait_counted(cluster, namespace, name, *, left):
    """Wait until so many pods of a Job are left, and it has counted the others, if it does so before it makes more."""
    wait_for(cluster, lambda: len(running(cluster, namespace)) == left, what=f"{left} pods are left")
    if not COUNTS_LATE:
        wait_for(cluster, lambda: _settled(cluster, namespace, name) == left, what="the Job has counted all others")


def _settled(cluster, namespace, name):
    """How many pods of a Job run, once it has counted those that ended."""
    found = status(cluster, namespace, name)
    assert not found.get("terminating")
    assert not any(found.get("uncountedTerminatedPods", {}).values())
    return found.get("ready", 0)  # not active, which 1.30 leaves out while the replacements are refused
