"""Attacks on limits: more GPUs than the team may have, or than it is charged for, and charges without a pod."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.attacks.attacker import Attacker
from tests.chaos.attacks.means import Action, Scene, collection, gpu_pod, named, own_pods, with_resources
from tests.control_plane.api import ApiError

YEAR = 31_536_000


def share_of_zero(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001  every action has it
    attacker.create_pod(with_resources(gpu_pod(dice, 8), gpumem_percentage="0"))


def share_that_the_node_does_not_know(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    share = dice.choice(({"gpumem_percentage": "1"}, {"gpumem": "1"}, {"gpucores": "1"}))
    attacker.create_pod(with_resources(gpu_pod(dice, 4, nodeName=dice.choice(scene.nodes)), **share))


def scarce_model_by_node_name(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    attacker.create_pod(gpu_pod(dice, 2, nodeName=scene.scarce_node))


def closed_pool_by_node_name(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    attacker.create_pod(gpu_pod(dice, 1, nodeName=scene.closed_node))


def every_node_by_a_daemon_set(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    """Its controller creates pods for nodes that no scheduler chose."""
    made = gpu_pod(dice, 1, tolerations=[{"operator": "Exists"}])
    selector = {"matchLabels": made["metadata"]["labels"]}
    target = dice.choice((scene.scarce_node, scene.closed_node, *scene.nodes))
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": target}
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    sets = collection(attacker, "apps/v1", "daemonsets")
    for old in attacker.api.list(sets):
        attacker.api.delete(f"{sets}/{old['metadata']['name']}")
    attacker.api.create(
        sets,
        {"metadata": {"name": named(dice)}, "spec": {"selector": selector, "template": template}},
    )


def claim_made_larger(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Gate a pod with a small claim, then put a large one in its place, at times marked as kube-scheduler's own."""
    claims, name = collection(attacker, "resource.k8s.io/v1", "resourceclaims"), named(dice)
    attacker.api.create(claims, {"metadata": {"name": name}, "spec": _devices("gpu.nvidia.com", 1)})
    made = gpu_pod(dice, 0, name=name, resourceClaims=[{"name": "gpus", "resourceClaimName": name}])
    made["spec"]["schedulingGates"] = [{"name": "example.org/later"}]
    _until_known(attacker, made)
    attacker.api.delete(f"{claims}/{name}")
    with suppress(ApiError):
        attacker.api.patch(f"{claims}/{name}", {"metadata": {"finalizers": None}})
    marked = {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}} if dice.random() < 0.5 else {}
    spec = _devices("gpu.nvidia.com", dice.choice((6, 16)))
    attacker.api.create(claims, {"metadata": {"name": name, **marked}, "spec": spec})
    attacker.api.patch(f"{collection(attacker, 'v1', 'pods')}/{name}", {"spec": {"schedulingGates": None}})


def class_for_anything(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Claim GPUs by a DeviceClass without selectors: only the claim itself says what driver it wants."""
    claims, name = collection(attacker, "resource.k8s.io/v1", "resourceclaims"), named(dice)
    spec = _devices("anything", dice.choice((4, 16)))
    spec["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}
    ]
    attacker.api.create(claims, {"metadata": {"name": name}, "spec": spec})
    _until_known(attacker, gpu_pod(dice, 0, resourceClaims=[{"name": "gpus", "resourceClaimName": name}]))


def ghosts(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Force-delete a pod with a long grace period: the node still runs it. Then request the GPUs again."""
    pods = collection(attacker, "v1", "pods")
    for made in own_pods(attacker)[:4]:
        with suppress(ApiError):
            attacker.api.delete(f"{pods}/{made['metadata']['name']}", {"gracePeriodSeconds": 0})
    for _ in range(4):
        attacker.create_pod(
            gpu_pod(
                dice,
                dice.choice((1, 3)),
                terminationGracePeriodSeconds=dice.choice((5, 600, YEAR)),
                annotations={"fairgate.test/ignores-sigterm": "true"},
            )
        )


def phantoms(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Create an existing name repeatedly: each attempt is charged before it fails."""
    name = "taken"
    with suppress(ApiError):
        attacker.create_pod(gpu_pod(dice, 1, name=name))
    for _ in range(3):
        with suppress(ApiError):
            attacker.create_pod(gpu_pod(dice, 3, name=name))


def many_service_accounts(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Use another user for each pod."""
    name = f"sa-{dice.randrange(6)}"
    user = f"system:serviceaccount:{attacker.namespace}:{name}"
    with suppress(ApiError):
        attacker.api.create(collection(attacker, "v1", "serviceaccounts"), {"metadata": {"name": name}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": attacker.namespace}
    with suppress(ApiError):
        attacker.api.create(
            collection(attacker, "rbac.authorization.k8s.io/v1", "rolebindings"),
            {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
        )
    replace(attacker, user=user, api=attacker.cluster.acting_as(user)).create_pod(gpu_pod(dice, 2))


def forged_labels(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    labels = {"fairgate.dev/team": "t0", "fairgate.dev/tier": "guaranteed"}
    annotations = {"fairgate.dev/decision": '{"gpus":"0","tier":"guaranteed"}'}
    where = dice.choice(({}, {"nodeName": dice.choice(scene.nodes)}, {"schedulerName": "other"}))
    attacker.create_pod(gpu_pod(dice, dice.choice((0, 1, 4)), labels=labels, annotations=annotations, **where))


def endless_workload(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Request warnings for two billion pods; by dry run, otherwise the controllers would be the victim."""
    made = gpu_pod(dice, 8)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    spec = {"replicas": 2**31 - 1, "selector": {"matchLabels": made["metadata"]["labels"]}, "template": template}
    attacker.api.create(
        collection(attacker, "apps/v1", "deployments"), {"metadata": {"name": named(dice)}, "spec": spec}, dryRun="All"
    )


def more_than_the_limit(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    for gpus in (8, 5, 3, 2, 1):
        with suppress(ApiError):
            attacker.create_pod(gpu_pod(dice, gpus))


def hidden_in_containers(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Request GPUs in init containers and sidecars, which add up differently."""
    made = gpu_pod(dice, 1)
    main = made["spec"]["containers"][0]
    sidecar = main | {"name": "sidecar", "restartPolicy": "Always"}
    made["spec"]["initContainers"] = [sidecar, main | {"name": "first", "resources": _gpus(dice.choice((1, 9)))}]
    attacker.create_pod(made)


def _gpus(number: int) -> dict[str, Any]:
    return {"limits": {"nvidia.com/gpu": str(number)}, "requests": {"nvidia.com/gpu": str(number)}}


def _devices(device_class: str, count: int) -> dict[str, Any]:
    return {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": device_class, "count": count}}]}}


def _until_known(attacker: Attacker, made: dict[str, Any]) -> None:
    """Create a pod as soon as its claim is known, as clients do: they retry after 429."""
    for _ in range(20):
        try:
            attacker.create_pod(made)
        except ApiError as error:
            if error.status != 429:
                raise
            time.sleep(0.1)
        else:
            return


ACTIONS: tuple[Action, ...] = (
    share_of_zero,
    share_that_the_node_does_not_know,
    scarce_model_by_node_name,
    closed_pool_by_node_name,
    every_node_by_a_daemon_set,
    claim_made_larger,
    class_for_anything,
    ghosts,
    phantoms,
    many_service_accounts,
    forged_labels,
    endless_workload,
    more_than_the_limit,
    hidden_in_containers,
)
