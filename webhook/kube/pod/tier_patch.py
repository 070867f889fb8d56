"""The patch of an existing pod's tier, and of the reason code in its decision."""

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
"""The field manager of these writes, which the guard of labels checks."""

_CODES: Final = {Tier.GUARANTEED: Code.WITHIN_SHARE, Tier.PREEMPTIBLE: Code.BORROWS}
_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class LabeledPod:
    """The current tier fields of a pod. `is_leaving`: it is being deleted."""

    uid: Uid
    version: str
    team_label: str | None
    tier_label: str | None
    decision_annotation: str | None
    is_leaving: bool
    has_ended: bool


def read_labeled_pod(body: bytes) -> LabeledPod:
    """Decode a pod. Raises ValueError if the body is not a pod."""
    pod = _decoder.decode(body)
    metadata = pod.metadata
    return LabeledPod(
        uid=metadata.uid,
        version=metadata.resource_version,
        team_label=(metadata.labels or {}).get(keys.TEAM),
        tier_label=(metadata.labels or {}).get(keys.TIER),
        decision_annotation=(metadata.annotations or {}).get(keys.DECISION),
        is_leaving=metadata.deletion_timestamp is not None,
        has_ended=has_ended(pod),
    )


def tier_patch(pod: LabeledPod, tier: Tier, *, team: TeamName) -> bytes:
    """Return a merge patch that succeeds only if the pod has not changed since it was read.

    It also sets the team of a pod without one, which bypassed admission.
    """
    metadata: dict[str, Any] = {
        "uid": pod.uid,
        "resourceVersion": pod.version,
        "labels": {keys.TIER: str(tier)},
    }
    if pod.team_label is None:
        metadata["labels"][keys.TEAM] = team
    annotation = _with_code(pod.decision_annotation, _CODES[tier])
    if annotation is not None:
        metadata["annotations"] = {keys.DECISION: annotation}
    return msgspec.json.encode({"metadata": metadata})


def _with_code(annotation: str | None, code: Code) -> str | None:
    """Return a decision annotation with this reason code; None if it cannot be parsed, and so stays unchanged."""
    try:
        decision = json.loads(annotation or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(decision, dict):
        return None
    return json.dumps(decision | {"code": str(code)}, separators=(",", ":"))
