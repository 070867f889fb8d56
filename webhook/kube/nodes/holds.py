"""What an evictor writes and reads: taint and note of a held node, budgets, marks of idle pods.

PodDisruptionBudgets: which pods they cover, and how many of those may be evicted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from webhook.core.model.amounts import GangId, Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.node import NODE_LABELS, Autoscaler
from webhook.core.model.policy import LabelSelector
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, Purpose
from webhook.core.reclaim.reclaim_pods import Disruption
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.nodes.nodes import Place, to_places, to_written
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import Selector, to_selector
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.objects import is_plain
from webhook.kube.pod.pods import unix_seconds

_NOTHING: Final = LabelSelector((Requirement("", Operator.IN, ()),))
"""Selects no pod: a budget without a selector guards none."""

_EVERYTHING: Final = LabelSelector(())

_ALWAYS_ALLOW: Final = "AlwaysAllow"


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    selector: Selector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def to_disruption(budget: DisruptionBudget) -> Disruption:
    """Return a budget; one that the disruption controller has not counted yet allows no eviction of ready pods.

    Pods that are not ready go without it by its own policy, and by default where enough others are healthy.

    A selector with an unknown operator, or longer than any that is read, counts as one that selects all: the API server
    may refuse to evict any pod of the namespace.
    """
    written, status = budget.spec.selector, budget.status
    selector = _NOTHING if written is None else to_selector(written) or _EVERYTHING
    return Disruption(
        namespace=Namespace(budget.metadata.namespace),
        name=budget.metadata.name,
        selector=selector,
        allowed=status.disruptions_allowed,
        spares_healthy_only=budget.spec.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW
        or status.current_healthy >= status.desired_healthy > 0,
    )


# The format of a hold: a taint and annotations on the node, a toleration on each beneficiary.
#
# A node that is emptied for a waiting pod looks like one to remove, so the hold keeps it from its autoscaler.


_EFFECT: Final = "NoSchedule"
_KEEPING: Final = {
    Autoscaler.KARPENTER: keys.DO_NOT_DISRUPT,
    Autoscaler.CLUSTER_AUTOSCALER: "cluster-autoscaler.kubernetes.io/scale-down-disabled",
}
"""The annotation of a node by which each autoscaler does not remove it: with this value."""
_KEPT: Final = "true"


class _For(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: Namespace
    name: str
    uid: Uid
    purpose: Purpose = Purpose.RECLAIM


class _Evict(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"beneficiary": "for", "past_budgets": "pastBudgets", "is_moved": "moved"},
):
    namespace: Namespace
    name: str
    uid: Uid
    at: str
    beneficiary: Uid
    gang: GangId | None = None
    past_budgets: bool = False
    grace: int | None = None
    is_moved: bool = False


class _Note(msgspec.Struct, frozen=True, rename={"beneficiaries": "for", "targets": "evict"}):
    id: str
    until: str
    beneficiaries: tuple[_For, ...]
    targets: tuple[_Evict, ...] = ()
    since: str = ""
    kept: str | msgspec.UnsetType = msgspec.UNSET  # the annotation that was written with it
    places: tuple[Place, ...] | msgspec.UnsetType = msgspec.UNSET


class _NodeMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _NodeSpec(msgspec.Struct, frozen=True):
    taints: list[dict[str, Any]] | None = None


class _Node(msgspec.Struct, frozen=True):
    metadata: _NodeMetadata
    spec: _NodeSpec = _NodeSpec()


_note_decoder: Final = msgspec.json.Decoder(_Note)
_node_decoder: Final = msgspec.json.Decoder(_Node)


def read_node_hold(metadata: objects.ObjectMeta) -> NodeHold | None:
    """Return the hold that a node states; None where there is none, or the annotation has another format."""
    text = (metadata.annotations or {}).get(keys.HOLD)
    return None if text is None else parse_hold(text, NodeName(metadata.name))


def parse_hold(text: str, node: NodeName) -> NodeHold | None:
    """Return the hold of a node from its annotation; None where it has another format."""
    try:
        note = _note_decoder.decode(text)
    except msgspec.MsgspecError:
        return None
    return NodeHold(
        id=note.id,
        node=node,
        until=unix_seconds(note.until),
        beneficiaries=tuple(
            Beneficiary(each.uid, each.namespace, each.name, each.purpose) for each in note.beneficiaries
        ),
        targets=tuple(
            EvictionTarget(
                uid=t.uid,
                namespace=t.namespace,
                name=t.name,
                beneficiary=t.beneficiary,
                at=unix_seconds(t.at),
                gang=t.gang,
                is_past_budgets=t.past_budgets,
                grace_seconds=t.grace,
                is_moved=t.is_moved,
            )
            for t in note.targets
        ),
        since=unix_seconds(note.since),
        places=() if note.places is msgspec.UNSET else to_places(note.places),
    )


def is_marked(node: objects.Node) -> bool:
    """Whether a node carries any part of a hold."""
    taints = node.spec.taints if node.spec is not None else None
    return keys.HOLD in (node.metadata.annotations or {}) or any(taint.key == keys.HELD for taint in taints or ())


def hold_patch(body: bytes, node_hold: NodeHold | None) -> bytes | None:
    """Return a merge patch by which a node states this hold and no other; None where it does already.

    `body` is the node as it is now: taints are one list, and the patch fails if the node changed meanwhile. Raises
    ValueError where it is no node.
    """
    node = _node_decoder.decode(body)
    before = node.spec.taints or []
    taints = [taint for taint in before if taint.get("key") != keys.HELD]
    if node_hold is not None:
        taints.append({"key": keys.HELD, "value": node_hold.id, "effect": _EFFECT})
    annotations = node.metadata.annotations or {}
    written, key = _kept_before(annotations.get(keys.HOLD, "")), _keeping(node.metadata.labels or {})
    kept = key if node_hold is not None and (key == written or key not in annotations) else ""
    changed: dict[str, str | None] = {written: None} if written else {}
    if kept:
        changed[kept] = _KEPT
    note = None if node_hold is None else hold_text(node_hold, kept)
    if taints == before and annotations.get(keys.HOLD) == note:
        return None
    changed[keys.HOLD] = note
    metadata = {"resourceVersion": node.metadata.resource_version, "annotations": changed}
    return msgspec.json.encode({"metadata": metadata, "spec": {"taints": taints or None}})


def _kept_before(note: str) -> str:
    """Return the annotation that was written with a hold; "" if an admin's own was there, or for any other text."""
    try:
        kept = _note_decoder.decode(note).kept
    except msgspec.MsgspecError:
        return ""
    return kept if isinstance(kept, str) and kept in _KEEPING.values() else ""


def _keeping(labels: Mapping[str, str]) -> str:
    """Return the annotation by which its autoscaler does not remove a node with these labels; "" if it has none."""
    return next((key for each, key in _KEEPING.items() if any(label in labels for label in NODE_LABELS[each])), "")


def toleration_patch(uid: Uid, hold_id: str, *, is_first: bool) -> bytes:
    """Return a JSON patch by which a pod tolerates a hold; tolerations may be added to pods that exist."""
    toleration = {"key": keys.HELD, "operator": "Equal", "value": hold_id, "effect": _EFFECT}
    path = "/spec/tolerations"
    return msgspec.json.encode(
        [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": path, "value": [toleration]}
            if is_first
            else {"op": "add", "path": f"{path}/-", "value": toleration},
        ]
    )


def notice_patch(uid: Uid, *, at: int, team: TeamName | None) -> bytes:
    """Return a merge patch that announces an eviction on the pod itself; no team, or "": for none."""
    return _annotate(uid, {keys.EVICT_AT: rfc3339(at), keys.EVICT_FOR: team or None})


def keep_room_patch(uid: Uid, *, since: int | None) -> bytes:
    """Return a merge patch by which room under limits is kept for a waiting pod; None: no room is kept."""
    return _annotate(uid, {keys.RECLAIMING: None if since is None else rfc3339(since)})


def wake_patch(uid: Uid, hold_id: str) -> bytes:
    """Return a merge patch of a label, which kube-scheduler takes as a reason to try the pod again."""
    return msgspec.json.encode({"metadata": {"uid": uid, "labels": {keys.RETRY: hold_id}}})


def withdraw_notice_patch(uid: Uid) -> bytes:
    """Return a merge patch that withdraws an announcement."""
    return _annotate(uid, {keys.EVICT_AT: None, keys.EVICT_FOR: None})


def eviction(target: EvictionTarget, *, is_trial: bool) -> bytes:
    """Return an Eviction of exactly this pod and no other of its name.

    It has no resourceVersion, which would disable the API server's own retries.
    """
    return msgspec.json.encode(
        {
            "apiVersion": keys.BUDGET_API,
            "kind": "Eviction",
            "metadata": {"namespace": target.namespace, "name": target.name},
            "deleteOptions": _delete_options(target, is_trial=is_trial),
        }
    )


def deletion(target: EvictionTarget, *, is_trial: bool) -> bytes:
    """Return the options that delete exactly this pod and no other of its name."""
    return msgspec.json.encode(_delete_options(target, is_trial=is_trial))


def disruption_patch(target: EvictionTarget) -> bytes:
    """Return a strategic merge patch of a pod's status by which its controller treats its end as a disruption.

    An eviction does that by itself. Here the pod is deleted, and a podFailurePolicy reads the condition.
    """
    condition = {
        "type": DISRUPTION,
        "status": "True",
        "reason": "DeletionByFairgate",
        "message": "Fairgate: deleted to give borrowed GPUs back",
        "lastTransitionTime": rfc3339(target.at),
    }
    return msgspec.json.encode({"metadata": {"uid": target.uid}, "status": {"conditions": [condition]}})


def _delete_options(target: EvictionTarget, *, is_trial: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": target.uid}}
    if target.grace_seconds is not None:
        options["gracePeriodSeconds"] = target.grace_seconds
    if is_trial:
        options["dryRun"] = ["All"]
    return options


def rfc3339(seconds: int) -> str:
    """Return a time of Unix seconds as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _annotate(uid: Uid, annotations: dict[str, str | None]) -> bytes:
    return msgspec.json.encode({"metadata": {"uid": uid, "annotations": annotations}})


def hold_text(node_hold: NodeHold, kept: str = "") -> str:
    """Return the annotation of a hold; `kept` is the annotation that is written with it."""
    beneficiaries = tuple(_For(each.namespace, each.name, each.uid, each.purpose) for each in node_hold.beneficiaries)
    targets = tuple(
        _Evict(
            *(t.namespace, t.name, t.uid, rfc3339(t.at), t.beneficiary, t.gang),
            *(t.is_past_budgets, t.grace_seconds, t.is_moved),
        )
        for t in node_hold.targets
    )
    note = _Note(
        *(node_hold.id, rfc3339(node_hold.until), beneficiaries, targets, rfc3339(node_hold.since)),
        *(kept or msgspec.UNSET, to_written(node_hold.places) or msgspec.UNSET),
    )
    return msgspec.json.encode(note).decode()


# What is written where GPUs are not used: since when, on the pod; and on a Notebook, that it is stopped.


_NOTEBOOK_GROUP: Final = "kubeflow.org"


def idle_patch(uid: Uid, *, since: int | None) -> bytes:
    """Return a merge patch that says on a pod since when its GPUs are not used; None: they are."""
    annotations = {keys.IDLE_SINCE: None if since is None else rfc3339(since)}
    return msgspec.json.encode({"metadata": {"uid": uid, "annotations": annotations}})


def notebook_path(owner: ObjectRef) -> str | None:
    """Return the API path of a Notebook of Kubeflow; None for any other object."""
    group, _, version = owner.api_version.partition("/")
    if (group, owner.kind) != (_NOTEBOOK_GROUP, "Notebook") or not (is_plain(version) and is_plain(owner.name)):
        return None
    return f"/apis/{group}/{version}/namespaces/{owner.namespace}/notebooks/{owner.name}"


def stop_patch(owner: ObjectRef, *, at: int) -> bytes:
    """Return a merge patch that stops a Notebook as Kubeflow's culler does: its controller then runs no pod of it.

    A user starts it again by the button of Kubeflow's page, which removes the annotation.
    """
    return msgspec.json.encode({"metadata": {"uid": owner.uid, "annotations": {keys.NOTEBOOK_STOPPED: rfc3339(at)}}})
