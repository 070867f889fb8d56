"""Fairgate as it is compared: every team queues, one replica, and the evictor where shares are taken back.

Elsewhere nothing is to be evicted, so no pod is released for room that others borrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from benchmarks.side_by_side.loads import ROOT, Order, Shares
from tests.control_plane.cluster import ControlPlane
from tests.scenarios import serving
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import serve_fairgate

GANG = "fairgate.dev/gang"


@contextmanager
def fairgate(cluster: ControlPlane, shares: Shares) -> Iterator[None]:
    """Run Fairgate with these shares until the end of the block."""
    with serve_fairgate(cluster, is_own=True) as server:
        serving.write_policy(server.policy, policy_of(shares))
        serving.wait_policy(cluster, server.policy, lambda: server.get("/readyz"))
        with evictor(server) if shares.reclaims else nullcontext():
            yield


def policy_of(shares: Shares) -> str:
    """The policy: guaranteed shares, no limit of a team's own, and a limit over all of them."""
    departments: list[dict[str, object]] = [
        {"name": ROOT, "gpus": {"limit": shares.quota if shares.is_limit else "unlimited"}}
    ]
    for name, gpus in shares.departments.items():
        departments.append({"name": name, "parent": ROOT, "gpus": {"guaranteed": gpus, "limit": "unlimited"}})
    teams = [
        {
            "name": team.name,
            "namespaces": [team.name],
            "department": team.department,
            "gpus": {"guaranteed": team.guaranteed, "limit": "unlimited"},
        }
        for team in shares.teams
    ]
    more = {
        "departments": departments,
        "defaults": {"onLimit": "queue", "onNoRoom": "queue"},
        "queue": {"depth": 100_000},
        "reclaim": {"protect": [] if shares.reclaims else ["*"]},
    }
    return serving.policy_of(teams, more="".join(f"{key}: {json.dumps(value)}\n" for key, value in more.items()))


def mark_for_fairgate(made: dict[str, Any], order: Order) -> None:
    """Make a Job of several pods a gang."""
    if order.pods > 1:
        made["spec"]["template"]["metadata"]["annotations"][GANG] = "true"
