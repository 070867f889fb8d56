"""A namespace admin tries to keep room from the line by pods that never are on a node, again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import TIER, FairgateServer, serve_fairgate
from tests.scenarios.test_never_bound import NEVER

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

POLICY = "defaults: {onLimit: queue, onNoRoom: queue}\n"
BORROWERS = 3
"""Names of pods that never are bound, each created and deleted by a thread of its own."""


def sized(name: str, gpus: int, **more: object) -> dict:
    return pod(name, gpus=gpus, cpu="1", memory="1Gi", **more)


@contextmanager
def repeating(act: Callable[[], object]) -> Iterator[None]:
    """Repeat an act, one after the other, until the end of the block."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            act()

    with ThreadPoolExecutor(1) as pool:
        attack = pool.submit(repeat)
        try:
            yield
        finally:
            is_over.set()
        attack.result()


def seal(fairgate: FairgateServer, namespace: str) -> None:
    """Have PodSecurity refuse privileged pods, which have passed the mutating webhooks then."""
    label = "pod-security.kubernetes.io/enforce=baseline"
    fairgate.cluster.kubectl("label", "namespace", namespace, label, "--overwrite")


def refused_by_pod_security(attacker: Attacker, name: str) -> None:
    made = sized(name, 2)
    made["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        attacker.create_pod(made)


@pytest.mark.parametrize("repeats", [False, True], ids=["once", "again and again"])
def test_pods_that_are_refused_after_the_mutating_step_keep_no_room_from_the_line(cluster, repeats):
    """The room that was chosen for such a pod was given back only when the replica was asked again."""
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, policy=POLICY) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_b)
        seal(fairgate, attacker.namespace)
        create_pod(cluster, fairgate.team_a, sized("first", 2))
        wait_bound(cluster, fairgate.team_a, "first")
        create_pod(cluster, fairgate.team_a, sized("next", 4))
        refused_by_pod_security(attacker, "m")
        with repeating(lambda: refused_by_pod_security(attacker, "m")) if repeats else nullcontext():
            cluster.kubectl("delete", "pod", "first", "-n", fairgate.team_a)
            wait_bound(cluster, fairgate.team_a, "next")
        assert list_pods(cluster, attacker.namespace) == []


def create_again(attacker: Attacker, name: str, made: list[str]) -> None:
    """A borrower takes the room chosen for it, never is bound for want of a volume, and makes way for the next one."""
    with suppress(ApiError):  # refused once, or gone already
        attacker.create_pod(sized(name, 4, labels={TIER: "preemptible"}, **NEVER))
        made.append(name)
        attacker.api.delete(f"/api/v1/namespaces/{attacker.namespace}/pods/{name}", gracePeriodSeconds="0")


def test_borrowers_that_never_are_bound_keep_no_room_of_a_share_however_often_they_are_created(cluster):
    """The room that was promised to each was not taken back: the pod in line found none, and waited."""
    make_nodes(cluster, 1, gpus=4)
    policy, made = f"{POLICY}reclaim: {{notice: 1s}}\n", list[str]()
    with serve_fairgate(cluster, policy=policy) as fairgate, evictor(fairgate), ExitStack() as attack:
        attacker = make_attacker(cluster, fairgate.team_b)
        create_pod(cluster, fairgate.team_a, sized("first", 4))
        wait_bound(cluster, fairgate.team_a, "first")
        for number in range(BORROWERS):
            attack.enter_context(repeating(partial(create_again, attacker, f"m{number}", made)))
        create_pod(cluster, fairgate.team_a, sized("next", 4))
        cluster.kubectl("delete", "pod", "first", "-n", fairgate.team_a)
        wait_bound(cluster, fairgate.team_a, "next")
        assert len(made) > BORROWERS, "they come again"
