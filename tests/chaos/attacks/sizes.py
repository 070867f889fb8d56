"""Attacks by size: bodies that the API server accepts and that could take Fairgate seconds. Most are dry runs."""

from __future__ import annotations

import json
import random
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.attacks.attacker import Attacker
from tests.chaos.attacks.means import Action, Scene, collection, gpu_pod, named, own_pods
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod

MOST_CHEAP_NEIGHBOURS = 6


def _node_affinity(terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _expressions(count: int, dice: random.Random) -> list[dict[str, Any]]:
    salt = dice.randrange(10**6)
    return [
        {"matchExpressions": [{"key": f"k{salt}-{number}", "operator": "In", "values": ["v"]}]}
        for number in range(count)
    ]


def forged_decision(dice: random.Random) -> dict[str, Any]:
    nodes = [f"node-{number}" for number in range(50_000)]
    decision = json.dumps({"gpus": "1", "tier": "guaranteed", "nodes": nodes})[:250_000]
    return gpu_pod(
        dice, 1, annotations={"fairgate.dev/decision": decision}, **_node_affinity(_expressions(8_000, dice))
    )


def node_selector_terms(dice: random.Random) -> dict[str, Any]:
    return gpu_pod(dice, 1, **_node_affinity(_expressions(20_000, dice)))


def distinct_terms(dice: random.Random) -> dict[str, Any]:
    """Terms that no earlier pod had: what is cached of them stays."""
    return gpu_pod(dice, 1, **_node_affinity(_expressions(5_000, dice)))


def values_of_one_expression(dice: random.Random) -> dict[str, Any]:
    values = [f"v{number}" for number in range(150_000)]
    return gpu_pod(
        dice, 1, **_node_affinity([{"matchExpressions": [{"key": "k", "operator": "NotIn", "values": values}]}])
    )


def topology_keys(dice: random.Random) -> dict[str, Any]:
    salt = dice.randrange(10**6)
    terms = [
        {"topologyKey": f"k{salt}-{number}", "labelSelector": {"matchLabels": {"a": "b"}}} for number in range(8_000)
    ]
    if dice.random() < 0.5:
        return gpu_pod(dice, 1, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    wished = [{"weight": 1, "podAffinityTerm": term} for term in terms]
    return gpu_pod(dice, 1, affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wished}})


def spread_constraints(dice: random.Random) -> dict[str, Any]:
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": f"k{number}",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
        for number in range(10_000)
    ]
    return gpu_pod(dice, 1, topologySpreadConstraints=constraints)


def tolerations(dice: random.Random) -> dict[str, Any]:
    return gpu_pod(dice, 1, tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(20_000)])


def labels(dice: random.Random) -> dict[str, Any]:
    return gpu_pod(dice, 1, labels={f"k{number}": "v" * 60 for number in range(10_000)})


def containers(dice: random.Random) -> dict[str, Any]:
    made = gpu_pod(dice, 1)
    main = made["spec"]["containers"][0]
    made["spec"]["containers"] = [main | {"name": f"c{number}"} for number in range(3_000)]
    return made


SHAPES: tuple[Callable[[random.Random], dict[str, Any]], ...] = (
    forged_decision,
    node_selector_terms,
    distinct_terms,
    values_of_one_expression,
    topology_keys,
    spread_constraints,
    tolerations,
    labels,
    containers,
)


def _in_a_dry_run(shape: Callable[[random.Random], dict[str, Any]]) -> Action:
    def action(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
        attacker.create_pod(shape(dice), dryRun="All")

    action.__name__ = f"large_{shape.__name__}"
    return action


def cheap_neighbours(attacker: Attacker, scene: Scene, dice: random.Random) -> None:
    """Without a GPU, and never reviewed: pods that exclude a victim's pods by thousands of anti-affinity terms."""
    mine = [made for made in own_pods(attacker) if made["metadata"]["labels"].get("cheap")]
    if len(mine) >= MOST_CHEAP_NEIGHBOURS:
        return
    terms = [
        {"topologyKey": f"k{number}", "namespaces": [dice.choice(scene.victims)], "labelSelector": {}}
        for number in range(6_000)
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    made = pod(named(dice), gpus=0, cpu="1m", memory="1Mi", labels={"cheap": "yes"}, affinity=affinity)
    attacker.create_pod(made)


def unfinished_headers(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Call Fairgate directly: incomplete requests on many connections."""
    context = _anyone()
    for _ in range(dice.randrange(10, 30)):
        with suppress(OSError):
            raw = socket.create_connection(scene.service, timeout=2)
            try:
                _OPEN.append(context.wrap_socket(raw, server_hostname="fairgate"))
                _OPEN[-1].sendall(b"POST /validate HTTP/1.1\r\nHost: fairgate\r\nX-More: ")
            except OSError:
                raw.close()
                raise
    while len(_OPEN) > 200:
        _OPEN.pop(0).close()


_OPEN: list[ssl.SSLSocket] = []


def _anyone() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def let_go() -> None:
    """Close what `unfinished_headers` left open."""
    while _OPEN:
        _OPEN.pop().close()


def large_bodies(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Call Fairgate directly: bodies of 8 MiB without a certificate, of which only the beginning is sent."""
    context = _anyone()
    head = b"POST /validate HTTP/1.1\r\nHost: fairgate\r\nContent-Length: 8388608\r\n\r\n"
    with suppress(OSError):
        raw = socket.create_connection(scene.service, timeout=2)
        with context.wrap_socket(raw, server_hostname="fairgate") as connection:
            connection.sendall(head)
            for _ in range(8):
                connection.sendall(b"[" * 2**20)
            connection.recv(1024)


DRY_RUNS: tuple[Action, ...] = tuple(map(_in_a_dry_run, SHAPES))


def padded_pods(attacker: Attacker, scene: Scene, dice: random.Random) -> None:  # noqa: ARG001
    """Own pods with GPUs that grow until no one could evict or delete them."""
    finalizers = [f"example.com/{'x' * 50}-{number}" for number in range(15_000)]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o" * 1_400_000, "uid": "none"}
    metadata = dice.choice(({"finalizers": finalizers}, {"ownerReferences": [owner]}))
    for made in own_pods(attacker):
        if "nvidia.com/" in json.dumps(made["spec"]["containers"]):
            with suppress(ApiError):
                attacker.api.patch(
                    f"{collection(attacker, 'v1', 'pods')}/{made['metadata']['name']}", {"metadata": metadata}
                )


ACTIONS: tuple[Action, ...] = (
    *DRY_RUNS,
    padded_pods,
    cheap_neighbours,
    unfinished_headers,
    large_bodies,
)
