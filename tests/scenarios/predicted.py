"""Applies a workload and compares the pods that its operator creates with those predicted from the manifest."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.examples import examples
from tests.control_plane.versions import Recipe
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.standing_fairgate import TIER, FairgateServer, serve_fairgate
from webhook.core.model.demand import Demand
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.kinds.kind_row import NO_RELATED, Related
from webhook.kube.kinds.model import PodSet, Workload
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import objects
from webhook.kube.pod.demands import read_demand
from webhook.kube.workloads.expand import expand

GUARANTEED, LIMIT = 20, 24


def assert_predicted(
    cluster: ControlPlane, small: dict[str, Any], large: dict[str, Any], *, related: Related = NO_RELATED
) -> None:
    """A small workload runs whole; of a large one, with two GPUs a pod, as many pods as the limit allows."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=LIMIT) as fairgate:
        assert_pods_as_predicted(fairgate, small, related=related)
        assert_survives_an_eviction(fairgate, small, related=related)
        _remove(fairgate, small)
        assert_refused_as_predicted(fairgate, large, related=related)


def assert_examples_as_predicted(cluster: ControlPlane, recipe: Recipe, *paths: str) -> None:
    """The pods that operators create from manifests of other projects, one after another, are those predicted."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=LIMIT) as fairgate:
        for path in paths:
            for manifest in examples(recipe, path):
                if isinstance(expand(manifest, kinds=kind_table()), Workload):
                    assert_pods_as_predicted(fairgate, manifest)
                    _remove(fairgate, manifest)


def _remove(fairgate: FairgateServer, manifest: dict[str, Any]) -> None:
    named = f"{manifest['kind']}.{manifest['apiVersion'].partition('/')[0]}/{manifest['metadata']['name']}"
    fairgate.cluster.kubectl("delete", "-n", fairgate.team_a, named)

    def is_gone() -> bool:
        return not list_pods(fairgate.cluster, fairgate.team_a) and fairgate.charged("a") == 0

    wait_for(fairgate.cluster, is_gone, what=f"{named} gone")


def predict(manifest: dict[str, Any], *, related: Related = NO_RELATED) -> Workload:
    found = expand(manifest, kinds=kind_table(), related=related)
    assert isinstance(found, Workload), found
    assert all(pod_set.problem is None for pod_set in found.pod_sets), found
    return found


def assert_pods_as_predicted(
    fairgate: FairgateServer, manifest: dict[str, Any], *, related: Related = NO_RELATED
) -> None:
    """Apply it, and wait for exactly the predicted pods."""
    manifest = in_namespace(manifest, fairgate.team_a)
    workload = predict(manifest, related=related)
    want: Counter[tuple[str, ...]] = Counter()
    for pod_set in workload.pod_sets:
        want[_roles(pod_set.template, workload)] += pod_set.count or 0
    fairgate.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def all_there() -> bool:
        pods = list_pods(fairgate.cluster, fairgate.team_a)
        have = Counter(_roles(pod, workload) for pod in pods)
        assert have == want
        return True

    wait_for(fairgate.cluster, all_there, what=f"the pods of {workload.kind} {workload.name}: {want}")


def assert_survives_an_eviction(
    fairgate: FairgateServer, manifest: dict[str, Any], *, related: Related = NO_RELATED
) -> None:
    """Evict one of its GPU pods: its operator creates another, and the workload has not failed."""
    cluster, workload = fairgate.cluster, predict(in_namespace(manifest, fairgate.team_a), related=related)
    count = sum(pod_set.count or 0 for pod_set in workload.pod_sets)

    def all_running() -> list[dict[str, Any]]:
        pods = list_pods(cluster, fairgate.team_a)
        assert [pod["status"].get("phase") for pod in pods] == ["Running"] * count
        assert not any("deletionTimestamp" in pod["metadata"] for pod in pods)
        return pods

    pods = wait_for(cluster, all_running, what=f"all pods of {workload.kind} {workload.name} run")
    victim = max((pod for pod in pods if _demand(pod).gpus), key=lambda pod: str(pod["metadata"]["name"]))
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.create(f"/api/v1/namespaces/{fairgate.team_a}/pods/{name}/eviction", eviction)

    def is_replaced() -> bool:
        return all(pod["metadata"]["uid"] != uid for pod in all_running())

    wait_for(cluster, is_replaced, what=f"{workload.kind} {workload.name} has another pod for {name}")
    group = workload.api_version.partition("/")[0]
    found = cluster.kubectl.json("get", f"{workload.kind}.{group}", workload.name, "-n", fairgate.team_a)
    failed = [each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Failed"]
    assert not any(each["status"] == "True" for each in failed), failed


def assert_refused_as_predicted(
    fairgate: FairgateServer, manifest: dict[str, Any], *, gpus: int = 2, related: Related = NO_RELATED
) -> None:
    """Apply one whose GPU pods, of so many GPUs each, exceed the limit; tiers and refusals must be as predicted."""
    manifest = in_namespace(manifest, fairgate.team_a)
    workload = predict(manifest, related=related)
    total = sum(_demand(pod_set.template).gpus * (pod_set.count or 0) for pod_set in workload.pod_sets) // 840_000
    done = fairgate.cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    warning = f"Warning: {workload.kind} {workload.name}: needs {total} GPUs, team a's limit is {LIMIT}"
    # the webhook sees no related objects: it can count only what the manifest itself has
    assert (warning in done.stderr.splitlines()) is (related is NO_RELATED)
    want = ["guaranteed"] * (GUARANTEED // gpus) + ["preemptible"] * ((LIMIT - GUARANTEED) // gpus)

    def up_to_the_limit() -> bool:
        assert sorted(_tiers(fairgate)) == want
        return fairgate.refused("TeamLimitExceeded") > 0

    wait_for(fairgate.cluster, up_to_the_limit, what=f"{len(want)} pods, and the others refused")


def in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    moved = copy.deepcopy(manifest)
    moved["metadata"]["namespace"] = namespace
    return moved


def _tiers(fairgate: FairgateServer) -> Iterator[str]:
    for pod in list_pods(fairgate.cluster, fairgate.team_a):
        if _demand(pod).gpus:
            yield pod["metadata"]["labels"][TIER]


def _roles(pod: dict[str, Any], workload: Workload) -> tuple[str, ...]:
    """The roles whose templates this pod may be made from: the leader of a group can be like its workers."""
    return tuple(pod_set.role for pod_set in workload.pod_sets if _is_of(pod, pod_set))


def _is_of(pod: dict[str, Any], pod_set: PodSet) -> bool:
    """Whether a pod has the predicted labels, kind of controller and GPUs."""
    metadata, predicted = pod["metadata"], pod_set.template["metadata"]
    labels = metadata.get("labels", {})
    has_labels = all(labels.get(key) == value for key, value in predicted["labels"].items())
    made_by, owners = (
        [(owner["apiVersion"], owner["kind"]) for owner in each.get("ownerReferences", ())]
        for each in (metadata, predicted)
    )
    return has_labels and made_by == owners and _demand(pod).devices == _demand(pod_set.template).devices


def _demand(pod: dict[str, Any] | Any) -> Demand:
    read = msgspec.json.decode(msgspec.json.encode(pod), type=objects.Pod)
    demand = read_demand(read.spec, BUILT_IN_RESOURCES).demand
    assert demand is not None
    return demand
