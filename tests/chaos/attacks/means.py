"""The parts of every attack: an action on an attacker, and helpers for requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.attacks.attacker import Attacker
from tests.control_plane.objects import pod

DEVICES = "/apis/resource.k8s.io/v1"
IMAGE = "example.invalid/x:1"
LABELLED = {"of": "mallory"}
"""A label on every pod of the attacker, so that its budgets and selectors match them."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The surroundings of an attacker: the other tenants, and the nodes."""

    victims: tuple[str, ...]
    nodes: tuple[str, ...]
    scarce_node: str
    """A node with GPUs of a model of which the attacker's team may have two."""
    closed_node: str
    """A node of a pool that is closed to the attacker's team."""
    service: tuple[str, int]
    """Where Fairgate listens."""

    @property
    def closed(self) -> frozenset[str]:
        """The nodes that not every team may use."""
        return frozenset({self.scarce_node, self.closed_node})


Action = Callable[[Attacker, Scene, random.Random], None]
"""One attack; an ApiError is a normal response."""


def named(dice: random.Random) -> str:
    """A name for an object."""
    return f"x-{dice.randrange(16**8):08x}"


def gpu_pod(dice: random.Random, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A pod of the attacker with GPUs and little else, so that only GPUs are scarce."""
    labels = LABELLED | more.pop("labels", {})
    return pod(more.pop("name", "") or named(dice), gpus=gpus, cpu="10m", memory="16Mi", labels=labels, **more)


def with_resources(made: dict[str, Any], **amounts: str) -> dict[str, Any]:
    """Request more resources of nvidia.com, by their names with `_` for `-`."""
    resources = made["spec"]["containers"][0]["resources"]
    for side in ("requests", "limits"):
        resources[side] |= {f"nvidia.com/{name.replace('_', '-')}": amount for name, amount in amounts.items()}
    return made


def collection(attacker: Attacker, group: str, plural: str) -> str:
    """The path of a collection in the attacker's namespace; group and version as in `apps/v1`, or `v1`."""
    return f"/{'api' if group == 'v1' else 'apis'}/{group}/namespaces/{attacker.namespace}/{plural}"


def own_pods(attacker: Attacker) -> list[dict[str, Any]]:
    """The pods of the attacker's namespace."""
    return attacker.api.list(collection(attacker, "v1", "pods"))
