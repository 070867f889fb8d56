"""The one patch that Fairgate makes to a pod that exists: its tier, and the reason in its decision."""

import json
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from webhook.core.model.names import TeamName, Uid
from webhook.core.model.reason import Code
from webhook.core.model.tier import Tier
from webhook.kube.objects import keys, objects
from webhook.kube.pod.pods import has_ended

FIELD_MANAGER: Final = "fairgate"
"""Says in each write who made it; the guard of labels looks for it."""

_CODES: Final = {Tier.GUARANTEED: Code.WITHIN_SHARE, Tier.PREEMPTIBLE: Code.BORROWS}
_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class LabeledPod:
    """A pod as it is now, as far as its tier goes. `is_leaving`: it is being deleted."""

    uid: Uid
    version: str
    team_label: str | None
    tier_label: str | None
    mark: str | None
    is_leaving: bool
    has_ended: bool


def read_labeled_pod(body: bytes) -> LabeledPod:
    """Read a pod. Raises ValueError where it is none."""
    pod = _decoder.decode(body)
    metadata = pod.metadata
    return LabeledPod(
        uid=metadata.uid,
        version=metadata.resource_version,
        team_label=(metadata.labels or {}).get(keys.TEAM),
        tier_label=(metadata.labels or {}).get(keys.TIER),
        mark=(metadata.annotations or {}).get(keys.DECISION),
        is_leaving=metadata.deletion_timestamp is not None,
        has_ended=has_ended(pod),
    )


def tier_patch(pod: LabeledPod, tier: Tier, *, team: TeamName) -> bytes:
    """Write a merge patch that takes only if this very pod is still as it was read.

    The team is written where none is: on a pod that never passed the gate.
    """
    metadata: dict[str, Any] = {
        "uid": pod.uid,
        "resourceVersion": pod.version,
        "labels": {keys.TIER: str(tier)},
    }
    if pod.team_label is None:
        metadata["labels"][keys.TEAM] = team
    mark = _with_code(pod.mark, _CODES[tier])
    if mark is not None:
        metadata["annotations"] = {keys.DECISION: mark}
    return msgspec.json.encode({"metadata": metadata})


def _with_code(mark: str | None, code: Code) -> str | None:
    """Let a decision give the reason of the new tier; None where it cannot be read, and so stays as it is."""
    try:
        told = json.loads(mark or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    return json.dumps(told | {"code": str(code)}, separators=(",", ":"))
