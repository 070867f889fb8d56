"""Evictions, and taints of held nodes.

Evicts one pod by whichever way the API server leaves open, and returns the outcome without HTTP terms.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import decoded, pod_path
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, HeldNodes, NodeHold
from webhook.kube.nodes.holds import (
    deletion,
    disruption_patch,
    eviction,
    hold_patch,
    keep_room_patch,
    notice_patch,
    toleration_patch,
    wake_patch,
    withdraw_notice_patch,
)
from webhook.kube.objects.keys import HELD_NODES, HELD_NODES_NAME, OWN_API
from webhook.kube.pod.outcomes import reduction_of
from webhook.kube.pod.pods import FIELD_MANAGER
from webhook.kube.registration.static_files import create_body, replace_patch

TRIES: Final = 3
"""How often a request without an answer is sent: the UID makes a second one harmless."""

SECONDS: Final = 35.0
"""How long a request may take. The API server waits up to 30 s for a foreign webhook, and then answers 500."""

TRIAL_SECONDS: Final = 2.0
"""The same for a dry run: all other work of the loop waits for it."""

LATER_SECONDS: Final = 2.0
"""When to try again where the API server gives no time."""


_REDUCTIONS: Final = 2
"""How often a pod that is too large is made smaller: by its metadata, then by its status."""

_BY_BUDGETS: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR)
"""What the API server answers where a budget is used up or not counted yet, or where there are several."""


class Evicted(StrEnum):
    """Success: the pod is evicted (or would be), or deleted without the Eviction API, or was gone before.

    OVERTAKEN: deleted, since its changes overtook each eviction.
    """

    ACCEPTED = "evicted"
    DELETED = "deleted"
    OVERTAKEN = "overtaken"
    GONE = "gone"


class EvictionObstacle(StrEnum):
    """What keeps a pod from being evicted.

    BUDGET: a disruption budget, or a 429 that reads like one: it may allow the eviction later. POLICY: the cluster's
    rights or an admission policy forbid it. FAILURE: the request fails, such as by a webhook that is down.
    """

    BUDGET = "budget"
    POLICY = "policy"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod is not evicted: another victim must be chosen."""

    why: str
    obstacle: EvictionObstacle = EvictionObstacle.FAILURE


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing is known yet, or the API server asked for a retry: the same victim, after so many seconds."""

    why: str
    seconds: float


Outcome = Evicted | Refused | Later


async def evict(
    connection: ApiConnection,
    target: EvictionTarget,
    *,
    is_guarded: bool = True,
    is_trial: bool = False,
    is_repeated: bool = False,
) -> Outcome:
    """Evict a pod, or only check whether that is allowed; never another pod of the same name.

    It is deleted, with the condition of an evicted pod, where its budgets do not allow its eviction and no longer
    count, where the Eviction API fails and no budget could object (`is_guarded` says that one could), and where its
    changes overtake an eviction that a dry run allows. A pod that is too large to be updated, and so to be evicted, is
    made smaller first. `is_repeated`: its eviction was put off before.
    """
    seconds = TRIAL_SECONDS if is_trial else SECONDS
    failure = await _failure_of_eviction(connection, target, is_trial=is_trial, seconds=seconds)
    for _ in range(_REDUCTIONS):
        if failure is None or is_trial or not _is_fault(failure) or not await _reduce(connection, target):
            break
        failure = await _failure_of_eviction(connection, target, is_trial=False, seconds=seconds)
    if failure is None:
        return Evicted.ACCEPTED
    deleted = Evicted.DELETED
    if not _calls_for_deletion(failure, target, is_guarded=is_guarded):
        is_overtaken = not is_trial and _may_be_overtaken(failure, is_repeated=is_repeated)
        if not is_overtaken or not await _is_allowed(connection, target, failure, is_guarded=is_guarded):
            return _explain(failure, is_guarded=is_guarded)
        deleted = Evicted.OVERTAKEN
    if not is_trial:
        await _mark_disrupted(connection, target)
    body = deletion(target, is_trial=is_trial)
    failure = await _failure(connection, "DELETE", _path(target), body, action="delete pods", seconds=seconds)
    return deleted if failure is None else _explain(failure, is_guarded=False)


async def _is_allowed(
    connection: ApiConnection, target: EvictionTarget, failure: ClusterError, *, is_guarded: bool
) -> bool:
    """Whether an eviction that was overtaken is allowed, by a dry run where anything could object."""
    if isinstance(failure, ApiError) and failure.is_conflict and not is_guarded:
        return True
    return await _failure_of_eviction(connection, target, is_trial=True, seconds=SECONDS) is None


async def _failure_of_eviction(
    connection: ApiConnection, target: EvictionTarget, *, is_trial: bool, seconds: float
) -> ClusterError | None:
    where, body = f"{_path(target)}/eviction", eviction(target, is_trial=is_trial)
    return await _failure(connection, "POST", where, body, action="create pods/eviction", seconds=seconds)


async def _failure(
    connection: ApiConnection, method: str, where: str, body: bytes, *, action: str, seconds: float
) -> ClusterError | None:
    """Send a request, again where the connection broke; return why it failed, None where it did not."""
    clock = asyncio.get_running_loop().time
    began, failures = clock(), 0
    while True:
        try:
            await connection.send(method, where, body, action=action, seconds=seconds)
        except ApiError as error:
            return error
        except ClusterError as error:
            failures += 1
            if failures == TRIES or clock() >= began + seconds:
                return error
            await asyncio.sleep(LATER_SECONDS / 10)
        else:
            return None


def _is_fault(failure: ClusterError) -> bool:
    """Whether a request failed without a decision: no answer, or one about the server or the size of the object."""
    if not isinstance(failure, ApiError):
        return True
    return failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR or failure.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def _calls_for_deletion(failure: ClusterError, target: EvictionTarget, *, is_guarded: bool) -> bool:
    if target.is_past_budgets and isinstance(failure, ApiError) and failure.status in _BY_BUDGETS:
        return True
    return _is_fault(failure) and (target.is_past_budgets or not is_guarded)


def _may_be_overtaken(failure: ClusterError, *, is_repeated: bool) -> bool:
    """Whether an eviction may have failed only because its pod keeps changing; a dry run then says what budgets allow.

    kube-apiserver evicts a pod that does not run, or is not ready, only at the resourceVersion that it read. It answers
    409 after 20 conflicts in ten seconds. Where a budget covers a pod that is not ready it answers the first conflict
    as if the budget was not counted yet, which is believed once.
    """
    if not isinstance(failure, ApiError):
        return False
    is_uncounted = failure.status == HTTPStatus.TOO_MANY_REQUESTS and bool(failure.retry_after_seconds)
    return failure.is_conflict or (is_repeated and is_uncounted)


async def _reduce(connection: ApiConnection, target: EvictionTarget) -> bool:
    """Make a pod smaller that is too large to be updated, and so to be deleted; return whether it is smaller now."""
    with suppress(ClusterError):
        found = reduction_of(await connection.send("GET", _path(target), action="get pods"), target.uid)
        if found is not None:
            where, action = _path(target), "patch pods"
            if found.subresource:
                where, action = f"{where}/{found.subresource}", f"{action}/{found.subresource}"
            await connection.send("PATCH", where, found.patch, action=action, content_type=JSON_PATCH)
            return True
    return False


async def _mark_disrupted(connection: ApiConnection, target: EvictionTarget) -> None:
    """Set the condition of a disruption on a pod; where that fails, its Job counts a failure, and nothing else."""
    body, action = disruption_patch(target), "patch pods/status"
    with suppress(ClusterError):
        await connection.send("PATCH", f"{_path(target)}/status", body, action=action, content_type=STRATEGIC_PATCH)


def _path(target: EvictionTarget) -> str:
    return pod_path(target.namespace, target.name)


def _explain(failure: ClusterError, *, is_guarded: bool) -> Outcome:
    if not isinstance(failure, ApiError):
        return Later(str(failure), LATER_SECONDS)
    match failure.status:
        case HTTPStatus.NOT_FOUND:
            return Evicted.GONE
        case HTTPStatus.CONFLICT:
            # Another pod has its name, which the watch will show; or a dry run did not allow its deletion.
            return Later(str(failure), LATER_SECONDS)
        case _ if failure.retry_after_seconds:
            return Later(str(failure), failure.retry_after_seconds)  # its budget is not counted yet, or it is busy
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Refused(str(failure), EvictionObstacle.BUDGET)
        case _ if _is_fault(failure):
            return Refused(
                str(failure), EvictionObstacle.BUDGET if is_guarded else EvictionObstacle.FAILURE
            )  # 500: two budgets
        case _:
            return Refused(str(failure), EvictionObstacle.POLICY)


# Writes holds on nodes, tolerations and notices on pods; never on another object of the same name.


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


async def wake(connection: ApiConnection, claim: Beneficiary, hold_id: str) -> None:
    """Have kube-scheduler try a waiting pod again: it does so where a pod's labels change. Raises ClusterError."""
    path = pod_path(claim.namespace, claim.name)
    await connection.send("PATCH", path, wake_patch(claim.uid, hold_id), action="patch pods", content_type=MERGE_PATCH)


async def give_notice(connection: ApiConnection, target: EvictionTarget, team: TeamName | None) -> None:
    """Announce an eviction on the pod, for a team's share or for none. Raises ClusterError."""
    await _annotate(connection, target, notice_patch(target.uid, at=target.at, team=team))


async def keep_room(connection: ApiConnection, waiting: Beneficiary, *, since: int | None) -> None:
    """Have all replicas keep room under limits for a queued pod; None: keep none. Raises ClusterError.

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
