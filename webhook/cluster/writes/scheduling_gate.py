"""Starts a pod that waited in line: takes its gate away and writes its decision in one patch."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import msgspec

from webhook.cluster.api.client import JSON_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import decoded, pod_path, read
from webhook.core.model.decision import Admit
from webhook.core.model.demand import Weights
from webhook.core.model.reason import Reason
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.admission.pod_patch import line_operations, release_operations
from webhook.kube.objects import keys, objects
from webhook.kube.pod.pods import is_queued
from webhook.kube.pod.tier_patch import FIELD_MANAGER
from webhook.kube.pod.waiting_pods import WatchedPod, to_waiting
from webhook.kube.pod.waiting_reason import Waits, waiting_annotations

_TRIES: Final = 2
"""Only Fairgate's own writes and its owner's changes of where it may run are in the way of a patch."""

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
    """Write why a pod waits in line, unless it is gone or has started; return whether it was written.

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
