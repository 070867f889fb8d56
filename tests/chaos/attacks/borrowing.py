"""Attacks on reclaim: borrow GPUs and never return them, or have others' borrowers evicted without need."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

from tests.attacks.attacker import Attacker
from tests.chaos.attacks.limits import YEAR
from tests.chaos.attacks.means import LABELLED, Action, Scene, collection, gpu_pod, named, own_pods
from tests.control_plane.api import ApiError

EVERYTHING = [{"operator": "Exists"}]


def placed_by_another_scheduler(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    node = dice.choice(scene.nodes)
    attacker.create_pod(gpu_pod(dice, 1, schedulerName="other", nodeName=node, tolerations=EVERYTHING))


def like_a_mirror_pod(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    annotations = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    attacker.create_pod(gpu_pod(dice, 1, annotations=annotations, nodeName=dice.choice(scene.nodes)))


def behind_a_budget(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    budgets = collection(attacker, "policy/v1", "poddisruptionbudgets")
    budget = {
        "maxUnavailable": 0,
        "selector": {"matchLabels": LABELLED},
        "unhealthyPodEvictionPolicy": "IfHealthyBudget",
    }
    with suppress(ApiError):
        attacker.api.create(budgets, {"metadata": {"name": "none"}, "spec": budget})
    attacker.create_pod(gpu_pod(dice, dice.choice((1, 2))))


def one_gang_of_all(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Guaranteed pods in it must not protect the others."""
    marks = dice.choice(
        (
            {"labels": {"scheduling.x-k8s.io/pod-group": "all"}},
            {"labels": {"training.kubeflow.org/job-name": "all"}},
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "all"}},
            {"annotations": {"scheduling.k8s.io/group-name": "all"}},
            {"annotations": {"fairgate.dev/gang": "true"}},
        )
    )
    attacker.create_pod(gpu_pod(dice, 1, **marks))


def pairs_of_own_pods(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """A label on each two running pods must not have others' pods evicted before them."""
    key = dice.choice(("ray.io/cluster", "training.kubeflow.org/job-name", "scheduling.x-k8s.io/pod-group"))
    for number, made in enumerate(own_pods(attacker)):
        path = f"{collection(attacker, 'v1', 'pods')}/{made['metadata']['name']}"
        with suppress(ApiError):
            attacker.api.patch(path, {"metadata": {"labels": {key: f"pair-{number // 2}"}}})


def slow_to_end(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    grace = dice.choice((10, 3_600, YEAR))
    annotations = {"fairgate.test/ignores-sigterm": "true"}
    attacker.create_pod(gpu_pod(dice, 1, annotations=annotations, terminationGracePeriodSeconds=grace))


def into_held_room(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Wait for room that is held for others, with a toleration for every taint."""
    tolerations = dice.choice((EVERYTHING, [{"operator": "Exists", "effect": "NoSchedule"}]))
    for _ in range(3):
        attacker.create_pod(gpu_pod(dice, 1, tolerations=tolerations, labels={"fairgate.dev/tier": "preemptible"}))


def never_to_start(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Wait as guaranteed for nodes that do not exist, so that others are evicted without need; repeat that."""
    hopeless = dice.choice(
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]},
            {"nodeSelector": {"no": "such-node"}},
            {"schedulingGates": [{"name": "example.org/never"}]},
            {"cpu": "1000"},
        )
    )
    name = named(dice)
    made = gpu_pod(dice, 2, name=name, labels={"fairgate.dev/tier": "guaranteed"}, **_without(hopeless, "cpu"))
    if "cpu" in hopeless:
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = hopeless["cpu"]
    attacker.create_pod(made)
    time.sleep(dice.random() * 2)
    attacker.api.delete(f"{collection(attacker, 'v1', 'pods')}/{name}")


def gang_that_comes_slowly(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Members 0.3 s apart, of which the last is never created: half of their room is freed."""
    name = named(dice)
    group = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
    with suppress(ApiError):
        attacker.api.create(collection(attacker, "scheduling.k8s.io/v1beta1", "podgroups"), group)
    for _ in range(3):
        with suppress(ApiError):
            attacker.create_pod(gpu_pod(dice, 1, labels={"scheduling.x-k8s.io/pod-group": name}))
        time.sleep(0.3)


def guaranteed_by_its_own_word(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    where = dice.choice(({"nodeName": dice.choice(scene.nodes)}, {"schedulerName": "other"}))
    attacker.create_pod(gpu_pod(dice, 1, labels={"fairgate.dev/tier": "guaranteed"}, **where))


def borrow_all(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    for _ in range(6):
        with suppress(ApiError):
            attacker.create_pod(gpu_pod(dice, 1))


def lie_about_checkpoints(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    annotations = {"fairgate.dev/checkpointed-at": dice.choice(("1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "x"))}
    attacker.create_pod(gpu_pod(dice, 1, annotations=annotations))


def _without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


ACTIONS: tuple[Action, ...] = (
    placed_by_another_scheduler,
    like_a_mirror_pod,
    behind_a_budget,
    one_gang_of_all,
    pairs_of_own_pods,
    slow_to_end,
    into_held_room,
    never_to_start,
    gang_that_comes_slowly,
    guaranteed_by_its_own_word,
    borrow_all,
    lie_about_checkpoints,
)
