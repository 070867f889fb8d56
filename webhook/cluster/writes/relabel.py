"""Changes the tier label of one pod, never of another pod with the same name."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from webhook.cluster.api.client import JSON_PATCH, MERGE_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import pod_path, read
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Resident
from webhook.kube.pod.tier_patch import FIELD_MANAGER, LabeledPod, read_labeled_pod, tier_patch

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
