"""Writes holds on nodes, tolerations and notices on pods; never on another object of the same name."""

from typing import Final

from webhook.cluster.api.client import JSON_PATCH, MERGE_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.api.one_object import decoded, pod_path
from webhook.core.model.names import NodeName, TeamName
from webhook.core.reclaim.held_nodes import HeldNodes
from webhook.core.reclaim.reservation import Beneficiary, EvictionTarget, NodeHold
from webhook.kube.objects.keys import HELD_NODES, HELD_NODES_NAME, OWN_API
from webhook.kube.pod.tier_patch import FIELD_MANAGER
from webhook.kube.reclaim.holds import (
    hold_patch,
    keep_room_patch,
    notice_patch,
    toleration_patch,
    withdraw_notice_patch,
)
from webhook.kube.registration.held_nodes import create_body, replace_patch

_TRIES: Final = 4
"""Kubelets write their nodes every few seconds: two conflicts in a row are rare."""

_HELD_NODES: Final = f"/apis/{OWN_API}/{HELD_NODES}"


async def write_hold(connection: ApiConnection, node: NodeName, node_hold: NodeHold | None) -> None:
    """Write a hold on a node, or remove it, also where the node is gone. Raises ClusterError."""
    path = f"/api/v1/nodes/{node}"
    failures = 0
    while True:
        try:
            body = await connection.send("GET", path, action="get nodes")
            patch = decoded(body, lambda body: hold_patch(body, node_hold), action="get nodes")
            if patch is not None:
                await connection.send("PATCH", path, patch, action="patch nodes", content_type=MERGE_PATCH)
        except ApiError as error:
            failures += 1
            if error.is_missing and node_hold is None:
                return
            if not error.is_conflict or failures == _TRIES:
                raise
        else:
            return


async def lock_nodes(connection: ApiConnection, held: HeldNodes) -> None:
    """Have the API server bind no other pods of teams to these nodes, and to no other nodes.

    Where there is no object yet, one is created, also if no node is held: the API server would look for it in etcd
    whenever a pod is created or bound. Raises ClusterError, also where the kind is not defined (404).
    """
    action = f"patch {HELD_NODES}"
    try:
        await connection.send(
            "PATCH", f"{_HELD_NODES}/{HELD_NODES_NAME}", replace_patch(held), action=action, content_type=JSON_PATCH
        )
    except ApiError as error:
        if not error.is_missing:
            raise
        await connection.send("POST", _HELD_NODES, create_body(held), action=f"create {HELD_NODES}")


async def tolerate_hold(connection: ApiConnection, claim: Beneficiary, hold_id: str, *, is_first: bool) -> None:
    """Make a waiting pod tolerate a hold. Raises ClusterError.

    `is_first`: it has no tolerations at all yet.
    """
    path = pod_path(claim.namespace, claim.name)
    patch = toleration_patch(claim.uid, hold_id, is_first=is_first)
    await connection.send("PATCH", path, patch, action="patch pods", content_type=JSON_PATCH)


async def give_notice(connection: ApiConnection, target: EvictionTarget, team: TeamName | None) -> None:
    """Announce an eviction on the pod, for a team's share or for none. Raises ClusterError."""
    await _annotate(connection, target, notice_patch(target.uid, at=target.at, team=team))


async def keep_room(connection: ApiConnection, waiting: Beneficiary, *, since: int | None) -> None:
    """Have all replicas keep room under limits for a pod in line; None: keep none. Raises ClusterError.

    A pod that is gone needs no room.
    """
    path = pod_path(waiting.namespace, waiting.name)
    body = keep_room_patch(waiting.uid, since=since)
    try:
        await connection.send("PATCH", path, body, action="patch pods", content_type=MERGE_PATCH)
    except ApiError as error:
        if not (error.is_missing or error.is_conflict):
            raise


async def take_notice_back(connection: ApiConnection, target: EvictionTarget) -> None:
    """Take an announcement back. Raises ClusterError."""
    await _annotate(connection, target, withdraw_notice_patch(target.uid))


async def _annotate(connection: ApiConnection, target: EvictionTarget, patch: bytes) -> None:
    path, by = pod_path(target.namespace, target.name), {"fieldManager": FIELD_MANAGER}
    await connection.send("PATCH", path, patch, action="patch pods", content_type=MERGE_PATCH, params=by)
