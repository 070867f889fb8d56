"""Attacks on the replicas' shared state and on devices: large labels, later changes, GPUs that were not requested."""

from __future__ import annotations

import random
from contextlib import suppress

from tests.attacks.attacker import Attacker
from tests.attacks.reaching import REACHING
from tests.chaos.attacks.means import Action, Scene, collection, gpu_pod, named, own_pods
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod

SPREAD = [
    {
        "maxSkew": 5,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"of": "mallory"}},
    }
]


class ReachedError(AssertionError):
    """A pod that reaches GPUs without a request was admitted."""


def heavy_labels(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Pods whose labels a ledger might store: a dozen of them make an object that the API server refuses."""
    labels = {f"k{number}": "v" * 60 for number in range(8_000)}
    for _ in range(2):
        with suppress(ApiError):
            attacker.create_pod(gpu_pod(dice, 1, labels=labels, topologySpreadConstraints=SPREAD))


def change_what_was_decided(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    for made in own_pods(attacker)[:3]:
        at = f"{collection(attacker, 'v1', 'pods')}/{made['metadata']['name']}"
        for change in (
            {"labels": {"fairgate.dev/tier": "guaranteed"}},
            {"labels": {"fairgate.dev/team": None}},
            {"annotations": {"fairgate.dev/decision": None}},
        ):
            with suppress(ApiError):
                attacker.api.patch(at, {"metadata": change})


def create_and_delete(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    pods = collection(attacker, "v1", "pods")
    for _ in range(10):
        name = named(dice)
        with suppress(ApiError):
            attacker.create_pod(gpu_pod(dice, 1, name=name))
            attacker.api.delete(f"{pods}/{name}", {"gracePeriodSeconds": dice.choice((0, 1))})


def clean_up(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Make room for the next attacks."""
    pods = collection(attacker, "v1", "pods")
    for made in own_pods(attacker):
        if dice.random() < 0.7:
            with suppress(ApiError):
                attacker.api.delete(f"{pods}/{made['metadata']['name']}", {"gracePeriodSeconds": dice.choice((0, 1))})


def devices_past_the_request(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    name, fields = dice.choice(list(REACHING.items()))
    made = pod(named(dice), **fields)
    try:
        attacker.create_pod(made)
    except ApiError:
        return
    raise ReachedError(name)


def devices_by_env_from(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    made = {"metadata": {"name": named(dice)}, "data": {"NVIDIA_VISIBLE_DEVICES": "all"}}
    try:
        attacker.api.create(collection(attacker, "v1", "configmaps"), made)
    except ApiError:
        return
    raise ReachedError("envFrom")


ACTIONS: tuple[Action, ...] = (
    heavy_labels,
    change_what_was_decided,
    create_and_delete,
    clean_up,
    clean_up,
    clean_up,
    devices_past_the_request,
    devices_by_env_from,
)
