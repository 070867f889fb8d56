"""Changes the tier label of one pod, and of no other that took its name."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Resident
from webhook.kube.pod.tier_patch import FIELD_MANAGER, LabeledPod, read_labeled_pod, tier_patch

_TRIES: Final = 4
"""Kubelet and scheduler write a young pod several times a second: two changes in a row between our read and write are
rare, and what fails is looked at again with the next change of the world."""


class Relabelled(Enum):
    """What came of it."""

    DONE = auto()
    ALREADY = auto()  # the label says so: an answer of ours was lost, or another replica did it
    GONE = auto()  # the pod ended, is being deleted, or another one has its name


async def relabel(
    connection: ApiConnection, pod: Resident, charge: Charge, *, is_leading: Callable[[], bool]
) -> Relabelled:
    """Write on a pod the tier that it is charged, and the team if it has none, by a single patch.

    Raises ClusterError where the API server did not take it.

    Read first: the patch names UID and version, and rewrites the decision as it is now. A write whose answer was lost
    is found done by the next call. A process that was paused after the read finds that it no longer leads.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    failures = 0
    while True:
        found = await _read(connection, path)
        if found is None or found.uid != pod.uid or _is_over(found):
            return Relabelled.GONE
        if found.tier_label == charge.tier and found.team_label is not None:
            return Relabelled.ALREADY
        if not is_leading():
            raise ClusterError("cannot patch pods: this replica leads no longer")
        try:
            await connection.send(
                "PATCH",
                path,
                tier_patch(found, charge.tier, team=charge.team),
                action="patch pods",
                content_type="application/merge-patch+json",
                params={"fieldManager": FIELD_MANAGER},
            )
        except ApiError as error:
            failures += 1
            if not error.is_conflict or failures == _TRIES:
                raise
        else:
            return Relabelled.DONE


def _is_over(pod: LabeledPod) -> bool:
    """Tell whether a pod keeps the tier that it has; one without any gets one for as long as it takes to end."""
    return pod.has_ended or (pod.is_leaving and pod.team_label is not None)


async def _read(connection: ApiConnection, path: str) -> LabeledPod | None:
    try:
        body = await connection.send("GET", path, action="get pods")
    except ApiError as error:
        if error.is_missing:
            return None
        raise
    try:
        return read_labeled_pod(body)
    except ValueError as cause:
        raise ClusterError(f"cannot get pods: the answer is no pod: {cause}") from cause
