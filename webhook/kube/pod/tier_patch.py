"""The patch of an existing pod's tier, and of the reason code in its decision."""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.names import TeamName, Uid
from webhook.core.model.reason import Code
from webhook.core.model.tier import Tier
from webhook.kube.objects import keys, objects
from webhook.kube.objects.json_patch import DECISION_PATH, TEAM_PATH, TIER_PATH, add, test
from webhook.kube.pod.pods import has_ended

FIELD_MANAGER: Final = "fairgate"
"""The field manager of these writes, which the guard of labels checks."""

_CODES: Final = {Tier.GUARANTEED: Code.WITHIN_SHARE, Tier.PREEMPTIBLE: Code.BORROWS}
_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class LabeledPod:
    """The current tier fields of a pod. `is_leaving`: it is being deleted."""

    uid: Uid
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
        team_label=(metadata.labels or {}).get(keys.TEAM),
        tier_label=(metadata.labels or {}).get(keys.TIER),
        decision_annotation=(metadata.annotations or {}).get(keys.DECISION),
        is_leaving=metadata.deletion_timestamp is not None,
        has_ended=has_ended(pod),
    )


class Patch(NamedTuple):
    """A merge patch, or a JSON patch."""

    body: bytes
    is_merge: bool


def tier_patch(pod: LabeledPod, tier: Tier, *, team: TeamName) -> Patch:
    """Return a patch that succeeds only on this pod, and where its team, tier and decision are those that were read.

    Those are guarded, so nothing that a tenant writes makes it fail. It also sets the team of a pod without one, which
    bypassed admission and may have no labels at all: then the UID is the only condition.
    """
    annotation = _with_code(pod.decision_annotation, _CODES[tier])
    if pod.team_label is None:
        metadata: dict[str, Any] = {"uid": pod.uid, "labels": {keys.TIER: str(tier), keys.TEAM: team}}
        if annotation is not None:
            metadata["annotations"] = {keys.DECISION: annotation}
        return Patch(msgspec.json.encode({"metadata": metadata}), is_merge=True)
    read = (
        ("/metadata/uid", pod.uid),
        (TEAM_PATH, pod.team_label),
        (TIER_PATH, pod.tier_label),
        (DECISION_PATH, pod.decision_annotation),
    )
    changes = [test(path, value) for path, value in read if value is not None]
    changes.append(add(TIER_PATH, str(tier)))
    if annotation is not None:
        changes.append(add(DECISION_PATH, annotation))
    return Patch(msgspec.json.encode(changes), is_merge=False)


def _with_code(annotation: str | None, code: Code) -> str | None:
    """Return a decision annotation with this reason code; None if it cannot be parsed, and so stays unchanged."""
    try:
        decision = json.loads(annotation or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(decision, dict):
        return None
    return json.dumps(decision | {"code": str(code)}, separators=(",", ":"))
