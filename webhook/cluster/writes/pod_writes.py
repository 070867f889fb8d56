"""Writes on pods: marks of idle GPUs, tier labels, the end of a gate.

Writes on pods since when their GPUs are not used, and stops Notebooks.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import msgspec

from webhook.cluster.api.client import JSON_PATCH, MERGE_PATCH, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import decoded, pod_path, read
from webhook.core.model.decision import Admit, Charge
from webhook.core.model.demand import Weights
from webhook.core.model.pod import Resident
from webhook.core.model.reasons import Reason
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.admission.pod_patch import line_operations, release_operations
from webhook.kube.nodes.holds import idle_patch, notebook_path, stop_patch
from webhook.kube.objects import keys, objects
from webhook.kube.objects.events import ObjectRef
from webhook.kube.pod.pods import FIELD_MANAGER, LabeledPod, is_queued, read_labeled_pod, tier_patch
from webhook.kube.pod.waiting import Waits, WatchedPod, to_waiting, waiting_annotations


async def mark_idle(connection: ApiConnection, pod: Resident, *, since: int | None) -> None:
    """Write since when the GPUs of a pod are not used; None: they are. Raises ClusterError."""
    body = idle_patch(pod.uid, since=since)
    path = pod_path(pod.namespace, pod.name)
    await connection.send(
        "PATCH", path, body, action="patch pods", content_type=MERGE_PATCH, params={"fieldManager": FIELD_MANAGER}
    )


async def stop_notebook(connection: ApiConnection, owner: ObjectRef, *, at: int) -> None:
    """Stop a Notebook, so that no pod of it is created again; no other object is touched. Raises ClusterError."""
    if (path := notebook_path(owner)) is not None:
        body = stop_patch(owner, at=at)
        await connection.send("PATCH", path, body, action="patch notebooks.kubeflow.org", content_type=MERGE_PATCH)


# Changes the tier label of one pod, never of another pod with the same name.


_TRIES: Final = 2
"""Only Fairgate writes what the patch tests: an earlier leader may have done so between our read and write."""


class RelabelResult(Enum):
    """The result of a relabel."""

    DONE = auto()
    ALREADY = auto()  # the label is right: a response was lost, or another replica wrote it
    GONE = auto()  # the pod ended, is being deleted, or another pod has its name


async def relabel(
    connection: ApiConnection, pod: Resident, charge: Charge, *, is_leading: Callable[[], bool]
) -> RelabelResult:
    """Write the charged tier to a pod's label, and the team if the pod has none, in one patch.

    Raises ClusterError if the API server did not accept it.

    Reads first: the patch tests what it read of Fairgate's own keys, and rewrites the current decision; other writes to
    the pod are not in its way. If the response to a write was lost, the next call finds it done. A process that was
    paused after the read finds that it no longer leads.
    """
    path = pod_path(pod.namespace, pod.name)
    failures = 0
    while True:
        found = await read(connection, path, read_labeled_pod, action="get pods")
        if found is None or found.uid != pod.uid or _is_over(found):
            return RelabelResult.GONE
        if found.tier_label == charge.tier and found.team_label is not None:
            return RelabelResult.ALREADY
        if not is_leading():
            raise ClusterError("cannot patch pods: this replica is no longer the leader")
        patch = tier_patch(found, charge.tier, team=charge.team)
        try:
            await connection.send(
                "PATCH",
                path,
                patch.body,
                action="patch pods",
                content_type=MERGE_PATCH if patch.is_merge else JSON_PATCH,
                params={"fieldManager": FIELD_MANAGER},
            )
        except ApiError as error:
            failures += 1
            if not (error.is_conflict or error.is_invalid) or failures == _TRIES:
                raise
        else:
            return RelabelResult.DONE


def _is_over(pod: LabeledPod) -> bool:
    """Return whether a pod keeps its tier; a terminating pod without a tier still gets one."""
    return pod.has_ended or (pod.is_leaving and pod.team_label is not None)


# Starts a pod that waited in the queue: takes its gate away and writes its decision in one patch.


_decoder: Final = msgspec.json.Decoder(objects.Pod)


class ReleaseResult(Enum):
    """The result of a release."""

    DONE = auto()
    ALREADY = auto()  # the gate is gone: a response was lost, or another replica removed it
    GONE = auto()  # the pod ended, is being deleted, or another pod has its name
    CHANGED = auto()  # what it asks for is not what was judged


async def release_pod(
    connection: ApiConnection,
    waiting: WaitingPod,
    admit: Admit,
    *,
    seen: WaitingPod | None,
    now_text: str,
    weights: Weights,
    is_leading: Callable[[], bool],
) -> ReleaseResult:
    """Remove Fairgate's gate from a charged pod and write team, tier, decision and nodes, in one patch.

    The first patch is for the pod as the watch shows it now (`seen`), without a read. Raises ClusterError if the API
    server did not accept it. Each patch tests what was judged (`release_operations`), however old the view is, and no
    resourceVersion: other writes to the pod do not delay its start.
    """
    found = _as_seen(seen, waiting)
    while True:
        is_read = found is None
        if found is None:
            found = await read(connection, _path(waiting), _decoder.decode, action="get pods")
            if found is None or found.metadata.uid != waiting.uid or found.metadata.deletion_timestamp is not None:
                return ReleaseResult.GONE
            if not is_queued(found.spec):
                return ReleaseResult.ALREADY
            if found.metadata.resource_version != waiting.version and not _asks_the_same(found, waiting, weights):
                return ReleaseResult.CHANGED
        if not is_leading():
            raise ClusterError("cannot patch pods: this replica is no longer the leader")
        patch = msgspec.json.encode(release_operations(found, admit, now_text=now_text))
        try:
            await _patch(connection, waiting, patch)
        except ApiError as error:
            if is_read or not _may_be_outdated(error):
                raise
            found = None
        else:
            return ReleaseResult.DONE


async def hold_in_line(connection: ApiConnection, waiting: WaitingPod, why: Reason | None = None) -> int | None:
    """Write on a pod if it still has its gate; return its version then, 0 if it is gone, None if it has none.

    `why` it waits on, None where that is written already. Where that returns a version, no patch that was sent before
    can remove the gate: it tests the decision, which the write changes. Raises ClusterError.
    """
    failures = 0
    while True:
        found = await read(connection, _path(waiting), _decoder.decode, action="get pods")
        if found is None or found.metadata.uid != waiting.uid or found.metadata.deletion_timestamp is not None:
            return 0
        if not is_queued(found.spec):
            return None
        patch = msgspec.json.encode(line_operations(found, _texts(why), is_held=True))
        try:
            body = await _patch(connection, waiting, patch)
        except ApiError as error:
            failures += 1
            if not _may_be_outdated(error) or failures == _TRIES:
                raise
        else:
            return int(decoded(body, _decoder.decode, action="get pods").metadata.resource_version)


async def write_reason(connection: ApiConnection, waiting: WaitingPod, why: Reason, *, gang_whole: int = 0) -> bool:
    """Write why a pod waits in the queue, unless it is gone or has started; return whether it was written.

    With it goes the size of its gang where that is whole (WaitingPod.gang_whole). Raises ClusterError.
    """
    has_size = gang_whole or waiting.gang_whole
    more = {keys.GANG_WHOLE: str(gang_whole) if gang_whole else None} if has_size else {}
    found = _as_seen(waiting, waiting)
    if found is None:
        found = await read(connection, _path(waiting), _decoder.decode, action="get pods")
        if found is None or found.metadata.uid != waiting.uid or not is_queued(found.spec):
            return False
    patch = msgspec.json.encode(line_operations(found, {**_texts(why), **more}))
    try:
        await _patch(connection, waiting, patch)
    except ApiError as error:
        if not _may_be_outdated(error):
            raise
        return False
    return True


def _texts(why: Reason | None) -> dict[str, str | None]:
    """Return why a pod waits, as annotations; none where that is written already."""
    return {} if why is None else waiting_annotations(Waits(why))


def _as_seen(seen: WaitingPod | None, waiting: WaitingPod) -> objects.Pod | None:
    """Return a pod as the watch shows it; None if it is to be read."""
    if not isinstance(seen, WatchedPod) or seen.is_terminating or seen.problem:
        return None
    return seen.parts if seen.version == waiting.version or _is_same(seen, waiting) else None


def _may_be_outdated(error: ApiError) -> bool:
    """Whether a patch may be refused since the pod is gone, another one, or not as it was."""
    return error.is_missing or error.is_invalid or error.is_conflict


def _asks_the_same(found: objects.Pod, waiting: WaitingPod, weights: Weights) -> bool:
    """Whether a pod can still be read, and may run where it might."""
    now = to_waiting(found, weights)
    return now is not None and not now.problem and _is_same(now, waiting)


def _is_same(now: WaitingPod, waiting: WaitingPod) -> bool:
    """Whether a pod may run where it might when it was judged.

    Its labels and annotations may change at any time, also right after its start, and its owner could keep others
    waiting behind it by changing them all the time: the last judgment counts.
    """
    if waiting.problem:
        return False
    was, pod = waiting.pod, now.pod
    return (was.constraints, was.foreign_gates) == (pod.constraints, pod.foreign_gates)


async def _patch(connection: ApiConnection, waiting: WaitingPod, body: bytes) -> bytes:
    return await connection.send(
        "PATCH",
        _path(waiting),
        body,
        action="patch pods",
        content_type=JSON_PATCH,
        params={"fieldManager": FIELD_MANAGER},
    )


def _path(waiting: WaitingPod) -> str:
    return pod_path(waiting.pod.namespace, waiting.pod.name)
