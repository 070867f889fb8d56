"""Which pods can be judged by the utilization of their GPUs."""

from dataclasses import replace

import pytest

from tests.addons.idle.made import rules
from tests.core.support import make
from tests.core.support.reclaim_pods import indexed, reclaim_pod
from webhook.addons.idle.judge import SHARES, candidates, workload_of
from webhook.core.model.amounts import ResourceName
from webhook.core.model.demand import PerDevice
from webhook.core.model.policy import LabelSelector
from webhook.core.reclaim.reclaim_pods import Controller

MIG = ResourceName("nvidia.com/mig-1g.5gb")


def found(*pods, nodes=(), **more):
    of = more.pop("rules", rules())
    policy = make.policy(idle=of, **more)
    index, world = indexed(*pods, policy=policy)
    for node in nodes:
        world.set_node(node)
    return list(candidates(index.all(), world))


def running(name="a", count=1, **more):
    return reclaim_pod(name, count, on=more.pop("on", "n0"), team="team-a", tier="preemptible", **more)


def with_demand(demand, **more):
    made = running(**more)
    return replace(made, pod=made.pod._replace(demand=demand))


def test_a_pod_has_one_series_for_each_gpu():
    (pod,) = found(running(count=8, created=7))
    assert (pod.devices, pod.gpus, pod.cannot_judge, pod.started_at) == (8, make.gpus(8), "", 7)
    assert pod.key == ("team-a", "a")


def test_a_pod_starts_up_when_its_containers_first_run_and_not_again_with_each_restart():
    (pod,) = found(running(created=7, started_at=8, runtime_from=50, works_since=90))
    assert pod.started_at == 50


@pytest.mark.parametrize(
    "pods",
    [
        [running(on=None)],
        [running(is_terminating=True)],
        [],
    ],
    ids=["on no node", "ends", "none"],
)
def test_other_pods_hold_nothing_to_judge(pods):
    assert found(*pods) == []


def test_without_actions_nothing_is_judged():
    assert found(running(), rules=replace(rules(), terms=replace(rules().terms, actions=frozenset()))) == []


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        (with_demand(replace(make.demand(1), per_device=PerDevice(make.GPU, 25, parts=100))), ()),
        (running(), [make.node("n0", labels={"nvidia.com/gpu.replicas": "4"})]),
    ],
    ids=["a share of a GPU", "time-slicing under the name of whole GPUs"],
)
def test_a_pod_that_shares_a_gpu_is_never_judged(pod, nodes):
    (judged,) = found(pod, nodes=nodes)
    assert judged.cannot_judge == SHARES


def test_a_mig_device_is_judged_by_metrics_of_parts():
    weights = {make.GPU: make.gpus(1), MIG: make.gpus(1) // 7}
    demand = replace(make.demand(1), devices=((MIG, 2),), requests=((MIG, 2),))
    (judged,) = found(with_demand(demand), resources=weights)
    assert (judged.has_parts, judged.devices, judged.cannot_judge) == (True, 2, "")


@pytest.mark.parametrize(
    "exempt",
    [
        {"exempt_namespaces": ("team-*",)},
        {"exempt_selectors": (LabelSelector((make.requirement("app", "In", "web"),)).requirements,)},
    ],
    ids=["by namespace", "by label"],
)
def test_policy_exempts_pods(exempt):
    (judged,) = found(running(labels={"app": "web"}), rules=rules(**exempt))
    assert judged.cannot_judge == "policy exempts it"


@pytest.mark.parametrize(
    ("controller", "want"),
    [
        (None, "team-a/Pod/a"),
        (Controller("batch/v1", "Job", "train", "u1"), "team-a/Job/train"),
        (Controller("apps/v1", "ReplicaSet", "web-7d4b9", "u1"), "team-a/ReplicaSet/web"),
    ],
    ids=["a pod", "a Job", "a rollout of a Deployment"],
)
def test_the_clock_is_of_the_workload(controller, want):
    assert workload_of(running(controller=controller)) == want
