"""Charges of pods that their owner deletes by force, again and again, to keep a share from its owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_namespace, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import TIER, FairgateServer, serve_fairgate
from webhook.core.quota.limits import MOST_LINGERING

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "100m", "memory": "64Mi"}
NEVER_REPORTED = {"fairgate.test/starts-after": "1h"}
LIMIT, SHARE = 16, 8
POLICY = 'defaults: {onNoRoom: queue}\nresources: {nvidia.com/mig-1g.5gb: {gpus: "1/7"}}\n'


@pytest.fixture
def fairgate(cluster: ControlPlane) -> Iterator[FairgateServer]:
    make_nodes(cluster, 4, resources={"nvidia.com/mig-1g.5gb": "200", "pods": "500"})
    with serve_fairgate(cluster, limit_a="unlimited", policy=POLICY) as running:
        wait_for(cluster, lambda: running.metric("fairgate_leader") == 1, what="it leads")
        yield running


@contextmanager
def department(fairgate: FairgateServer) -> Iterator[dict[str, str]]:
    """Two teams of a department with a limit: `c` is guaranteed nothing, `d` half of it; yields their namespaces.

    Each team has the name of its namespace: metrics have the teams of earlier tests, too.
    """
    cluster = fairgate.cluster
    spaces = {name: make_namespace(cluster) for name in ("c", "d")}
    above = f"shared-{spaces['d']}"
    teams = [
        {"name": spaces[name], "namespaces": [spaces[name]], "department": above, "onNoRoom": "wait", "gpus": gpus}
        for name, gpus in (("c", {"guaranteed": 0, "limit": LIMIT}), ("d", {"guaranteed": SHARE, "limit": LIMIT}))
    ]
    head = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
    shared = [{"name": above, "gpus": {"guaranteed": SHARE, "limit": LIMIT}}]
    (fairgate.policy / "more.yaml").write_text(f"{head}departments: {json.dumps(shared)}\nteams: {json.dumps(teams)}\n")
    try:
        wait_for(cluster, lambda: f'team="{spaces["d"]}"' in fairgate.get("/metrics"), what="the teams are known")
        yield spaces
    finally:
        (fairgate.policy / "more.yaml").unlink()


def ghost(number: int, **more: object) -> dict:
    spec = {"nodeName": f"node-{number % 4}", "terminationGracePeriodSeconds": 600, **SIZE, **more}
    made = pod(f"ghost-{number}", **spec)
    made["metadata"]["annotations"] = NEVER_REPORTED
    return made


@contextmanager
def storm(attacker: Attacker, *, gpus: int = 1) -> Iterator[list[int]]:
    """Create pods on nodes and delete each at once by force, until the end of the block; yields those let in."""
    stopping, let_in = Event(), []

    def repeat() -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            try:
                attacker.create_pod(ghost(number, gpus=gpus))
            except ApiError:
                stopping.wait(0.02)
                continue
            let_in.append(number)
            with suppress(ApiError):
                attacker.api.delete(f"{pods_of(attacker)}/ghost-{number}", gracePeriodSeconds="0")

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield let_in
    finally:
        stopping.set()
        thread.join()


def pods_of(attacker: Attacker) -> str:
    return f"/api/v1/namespaces/{attacker.namespace}/pods"


def test_pods_deleted_at_once_keep_no_share_in_a_department(fairgate):
    cluster = fairgate.cluster
    with department(fairgate) as spaces:
        attacker = make_attacker(cluster, spaces["c"])
        with storm(attacker) as let_in:
            wait_for(cluster, lambda: fairgate.charged(spaces["c"]) == LIMIT, what="nothing is left under the limit")
            create_pod(cluster, spaces["d"], pod("own", gpus=SHARE, **SIZE))
            wait_bound(cluster, spaces["d"], "own")
            assert fairgate.charged(spaces["c"]) <= LIMIT - SHARE
        assert len(let_in) >= LIMIT
        assert get_pod(cluster, spaces["d"], "own")["metadata"]["labels"][TIER] == "guaranteed"


def test_pods_deleted_at_once_keep_no_room_from_those_that_wait_for_it(fairgate):
    cluster = fairgate.cluster
    attacker = make_attacker(cluster, fairgate.team_a)
    with storm(attacker, gpus=10):
        wait_for(cluster, lambda: fairgate.charged("a") >= 40, what="as many as all nodes have")
        create_pod(cluster, fairgate.team_b, pod("own", gpus=10, **SIZE))
        wait_bound(cluster, fairgate.team_b, "own")


def test_pods_deleted_at_once_fill_no_ledger(fairgate):
    """Owners of any length, many pods: the department's object stays small, and only their team gets no more."""
    cluster, count = fairgate.cluster, MOST_LINGERING + 5
    owner = {"apiVersion": "v1", "kind": "K" * 600, "name": "n" * 1_400, "uid": "u", "controller": True}
    with department(fairgate) as spaces:
        attacker = make_attacker(cluster, spaces["c"])

        def create(number: int) -> None:
            made, slices = ghost(number, nodeName="none"), {"nvidia.com/mig-1g.5gb": "1"}
            made["spec"]["containers"][0]["resources"] = {"limits": slices, "requests": slices}
            made["metadata"]["ownerReferences"] = [owner]
            attacker.create_pod(made)

        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(create, range(count)))) == count
        attacker.api.delete(pods_of(attacker), gracePeriodSeconds="0")
        ledger = wait_for(
            cluster,
            lambda: len(entries := left(fairgate)) == MOST_LINGERING and entries,
            what="as many are listed as may be",
        )
        assert len(json.dumps(ledger)) < 700 * MOST_LINGERING
        refused = attacker.refused(ghost(count, gpus=1), code="TooManyForceDeleted")
        assert f"exceeded quota: team {spaces['c']}: its nodes may still run" in refused
        create_pod(cluster, spaces["d"], pod("own", gpus=1, **SIZE))
        wait_for(cluster, lambda: attacker.create(ghost(count, gpus=1)).returncode == 0, what="room again")


def left(fairgate: FairgateServer) -> list[dict]:
    found = fairgate.cluster.api.list("/apis/fairgate.dev/v1alpha1/teamledgers")
    entries = [entry for each in found for entry in each.get("ledger", {}).get("inFlight", [])]
    return [entry for entry in entries if "lingers" in entry]
