"""Pods go together where an object that makes them says so, and markers alone choose no victims."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, asker, indexed
from tests.examples import examples
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.snapshot import take_snapshot
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys, objects
from webhook.kube.pod.existing import to_reclaim_pod

LWS = {keys.LWS_NAME: "llm", keys.LWS_GROUP: "hash"}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "g"}
GANG = {keys.GANG: "true"}


def owner(kind, name, *, uid="u-1", **more):
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True, **more}


def job(name, **more):
    return owner("Job", name, apiVersion="batch/v1", **more)


def cluster_of_ray(name, **more):
    return owner("RayCluster", name, apiVersion="ray.io/v1", **more)


def read(owners=(), *, name="p", namespace="team-a", uid="p", **more):
    made = builders.pod(name, namespace=namespace, uid=uid, **more)
    made["metadata"]["ownerReferences"] = list(owners)
    return to_reclaim_pod(msgspec.json.decode(json.dumps(made), type=objects.Pod), BUILT_IN_RESOURCES)


@pytest.mark.parametrize(
    ("own", "more", "want"),
    [
        ([cluster_of_ray("r")], {"labels": {keys.RAY_CLUSTER: "r"}}, "ray.io/cluster=r"),
        (
            [owner("PyTorchJob", "bert", apiVersion="kubeflow.org/v1")],
            {"labels": {keys.KUBEFLOW_JOB: "bert"}},
            "training.kubeflow.org/job-name=bert",
        ),
        ([job("bert-launcher")], {"labels": {keys.KUBEFLOW_JOB: "bert"}}, "training.kubeflow.org/job-name=bert"),
        ([job("js-workers-0")], {"labels": {keys.JOBSET_NAME: "js"}}, "jobset.sigs.k8s.io/jobset-name=js"),
        ([owner("StatefulSet", "llm")], {"labels": LWS, "name": "llm-0"}, f"{keys.LWS_NAME}=llm-0"),
        ([owner("StatefulSet", "llm-0")], {"labels": LWS, "name": "llm-0-1"}, f"{keys.LWS_NAME}=llm-0"),
        ((), {"schedulingGroup": {"podGroupName": "core"}}, "schedulingGroup=core"),
        ([job("train")], {"annotations": GANG}, "Job=u-1"),
        ([job("train")], {"annotations": {keys.TOPOLOGY: "rack"}}, "Job=u-1"),
        ([job("train")], {"labels": KUEUE}, "Job=u-1"),
        (
            [owner("Job", "v", apiVersion="batch.volcano.sh/v1alpha1")],
            {"annotations": {keys.VOLCANO_GROUP: "v-1"}},
            "Job=u-1",
        ),
        ([owner("Run", "x", apiVersion="ml.example.com/v1")], {"annotations": GANG}, "Run=u-1"),
    ],
    ids=[
        "RayCluster", "Kubeflow", "an MPIJob's launcher", "JobSet", "the leader of a LeaderWorkerSet",
        "its worker", "a PodGroup of Kubernetes", "a Job by annotation", "a Job by topology", "a Job's Kueue group",
        "a Volcano Job", "an object of a kind that is not known",
    ],
)  # fmt: skip
def test_a_gang_is_what_an_object_says(own, more, want):
    assert read(own, **more).goes_with == f"team-a/{want}"


@pytest.mark.parametrize(
    ("own", "more"),
    [
        ((), {"labels": {keys.RAY_CLUSTER: "r"}}),
        ((), {"labels": KUEUE}),
        ([cluster_of_ray("other")], {"labels": {keys.RAY_CLUSTER: "r"}}),
        ([cluster_of_ray("r", controller=False)], {"labels": {keys.RAY_CLUSTER: "r"}}),
        ([owner("ReplicaSet", "r")], {"labels": {keys.RAY_CLUSTER: "r"}}),
        ([owner("ReplicaSet", "bert")], {"labels": {keys.KUBEFLOW_JOB: "bert"}}),
        ([job("train")], {"labels": {keys.JOBSET_NAME: "js"}}),
        ([owner("StatefulSet", "other")], {"labels": LWS}),
        ([owner("ReplicaSet", "web")], {"annotations": {keys.VOLCANO_GROUP: "podgroup-1"}}),
        ([owner("ConfigMap", "c", apiVersion="v1")], {"annotations": GANG}),
        ([owner("Lease", "l", apiVersion="coordination.k8s.io/v1")], {"annotations": GANG}),
        ([job("sweep")], {}),
    ],
    ids=[
        "no controller", "no controller of a group", "another RayCluster", "an owner that is no controller",
        "a ReplicaSet is no RayCluster", "nor a PyTorchJob", "a Job of no JobSet", "another StatefulSet",
        "Volcano marks servers too", "a ConfigMap makes no pods", "nor does a Lease", "a Job without a mark",
    ],
)  # fmt: skip
def test_a_marker_alone_makes_no_gang(own, more):
    assert read(own, **more).goes_with is None


def test_markers_do_not_divide_the_pods_of_an_object():
    """Pairs of a large Job's pods would be evicted after all others."""
    found = {
        read([job("train")], uid=f"p{n}", labels={**KUEUE, next(iter(KUEUE)): f"g{n}"}).goes_with for n in range(4)
    }
    assert found == {"team-a/Job=u-1"}


class Forged(NamedTuple):
    labels: Mapping[str, str] = MappingProxyType({})
    annotations: Mapping[str, str] = MappingProxyType({})
    owners: Sequence[dict[str, object]] = ()


NOTES = (keys.GANG, *keys.GANG_ANNOTATIONS)
POLICY = make.policy(make.team(guaranteed=0), make.team("team-b"), make.team("team-c", guaranteed=0))
OPERATORS = (keys.KUBEFLOW_JOB, keys.JOBSET_NAME, keys.LWS_GROUP, keys.RAY_CLUSTER, keys.LWS_NAME)
UNCONTROLLED = ([], [owner("ConfigMap", "g", apiVersion="v1")], [job("g-0", controller=False)])
NOT_THEIRS = ([owner("ReplicaSet", "g")], [cluster_of_ray("x")], [job("x-0")])


@st.composite
def forged(draw):
    """What a tenant writes on a pod without an object that declares a gang: markers, and owners that do not agree."""
    has_controller = draw(st.booleans())
    labels = OPERATORS if has_controller else (*OPERATORS, *keys.GANG_LABELS)
    values = st.sampled_from(["g", "h"])
    notes = {} if has_controller else draw(st.dictionaries(st.sampled_from(NOTES), st.sampled_from(["true", "g"])))
    owners = draw(st.sampled_from(NOT_THEIRS if has_controller else UNCONTROLLED))
    return Forged(draw(st.dictionaries(st.sampled_from(labels), values, max_size=3)), notes, owners)


@given(
    st.lists(forged(), min_size=4, max_size=4), st.lists(st.integers(0, 3), min_size=8, max_size=8), st.integers(1, 4)
)
@examples(100)
def test_forged_markers_on_own_pods_change_no_choice_of_victims(marks, ages, need):
    """Half of the pods are honest, of another team; what the others' owner writes makes no victim dearer."""

    def cost(*, marked):
        pods = [asker("b", need)]
        for number, age in enumerate(ages):
            team, place = ("team-a", number) if number < 4 else ("team-c", number - 4)
            mark = marks[number] if marked and number < 4 else Forged()
            own = {"fairgate.dev/team": team, "fairgate.dev/tier": "preemptible"}
            made = builders.pod(
                f"p{number}", namespace=team, uid=f"p{number}", gpus=1, node=f"n{place // 2}",
                labels={**mark.labels, **own}, annotations=mark.annotations,
            )  # fmt: skip
            at = rfc3339(NOW - 1000 * age - 500)
            made["metadata"] |= {"ownerReferences": list(mark.owners), "creationTimestamp": at}
            made["status"] = {"phase": "Running", "startTime": at}
            pod = msgspec.json.decode(json.dumps(made), type=objects.Pod)
            pods.append(to_reclaim_pod(pod, BUILT_IN_RESOURCES))
        reclaim_index, world = indexed(*pods, policy=POLICY, nodes=0)
        for name in ("n0", "n1"):
            world.set_node(make.node(name, gpus=4))
        found = plan([pods[0]], take_snapshot(reclaim_index, world, now=NOW))
        (move,) = found.moves
        return move.cost

    assert cost(marked=True) == cost(marked=False)
