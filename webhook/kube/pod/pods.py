"""A pod of the API as one value.

How long a pod runs by its annotation: it is shown, and no decision reads it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.amounts import Namespace, TeamName, Uid, parse_seconds
from webhook.core.model.constraints import Tier
from webhook.core.model.demand import ClaimRef, Weights
from webhook.core.model.pod import (
    DEFAULT_GRACE_SECONDS,
    MAX_SECONDS,
    NO_RUN_TIME,
    NO_UID,
    Handling,
    Owner,
    Pod,
    RunTime,
)
from webhook.core.model.reasons import Code, Reason
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.bounds import shortened
from webhook.kube.objects.keys import DECISION_PATH, TEAM_PATH, TIER_PATH, add, test
from webhook.kube.pod.constraints import read_placement, with_volumes
from webhook.kube.pod.demands import Reading, read_demand
from webhook.kube.pod.gangs import domain_problem, gang_of, gang_problem, ignored_of_gang, replica_of

_MAX_VALUE: Final = 64
_SHOWN: Final = 20
"""Characters of a value that is ignored: a warning has 120 in all."""
_EXPECTED: Final = f"write a duration such as 30m or 2h, of at most {MAX_SECONDS // 3600}h"


def stated_run_time(annotations: Mapping[str, str]) -> RunTime:
    """Return what a pod's annotation says of its run."""
    text = annotations.get(keys.RUN_TIME)
    if text is None:
        return NO_RUN_TIME
    stated = _seconds(text)
    if stated:
        return RunTime(stated)
    return RunTime(problem=f"annotation {keys.RUN_TIME} {shortened(text, _SHOWN)!r} is ignored: {_EXPECTED}")


def _seconds(text: str) -> int:
    """Return a run time; 0 where it is none, or too long."""
    return _parsed(text) if 0 < len(text) <= _MAX_VALUE else 0


@lru_cache(maxsize=1024)
def _parsed(text: str) -> int:
    try:
        found = parse_seconds(text)
    except ValueError:
        return 0
    return found if found <= MAX_SECONDS else 0


# From a Kubernetes pod under admission to a core Pod, or to the problems for which it is refused.


_NO_KEYS: Final[Mapping[str, str]] = {}
ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class InvalidPod:
    """A pod that the API server would refuse, or that cannot be parsed, with a message for each problem.

    `excess` lists exceeded limits. `is_foreign`: it requests nothing that could be a GPU, and may be admitted.
    """

    problems: tuple[str, ...]
    excess: tuple[str, ...] = ()
    is_foreign: bool = False

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of its refusal: the first of many problems, each truncated."""
        found = [(Code.TOO_LARGE, text) for text in self.excess]
        found += [(Code.INVALID_REQUEST, text) for text in self.problems]
        return tuple(
            [Reason(code, "{problem}", {"problem": bounds.shortened(text)}) for code, text in found[: bounds.PROBLEMS]]
        )


_SPREAD_BY_DEFAULT: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Controllers whose pods kube-scheduler spreads by default; it spreads other pods only if a Service selects them."""

_cached_owner: Final = lru_cache(maxsize=4096)(Owner)
_MAX_KIND: Final = 63
_MAX_NAME: Final = 253
"""Characters of an owner that are kept: the API server accepts any length, and refusals name the largest holders."""
_MAX_LABELS, _MAX_CONTAINERS = bounds.LABELS, bounds.CONTAINERS
_MAX_GATES: Final = 3
_MAX_TIME: Final = 64


def to_pod(
    pod: objects.Pod, *, namespace: Namespace, weights: Weights, name: str = "", uid: Uid = NO_UID
) -> Pod | InvalidPod:
    """Translate a pod under admission; `weights` as in read_demand.

    `name` and `uid` are used if the pod has none yet: setting them later would copy the frozen Pod.
    """
    metadata, spec = pod.metadata, pod.spec
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    annotation, requires, pool = map(annotations.get, (keys.DECISION, keys.REQUIRES, keys.POOL))
    if (
        len(labels) > _MAX_LABELS
        or len(spec.containers) > _MAX_CONTAINERS
        or (spec.init_containers is not None and len(spec.init_containers) > _MAX_CONTAINERS - len(spec.containers))
        or (annotation is not None and len(annotation) > bounds.DECISION_BYTES)
        or (requires is not None and len(requires) > bounds.REQUEST_BYTES)
        or (pool is not None and len(pool) > bounds.REQUEST_BYTES)
        or (spec.resource_claims is not None and any(_claims_excess(spec)))
    ):
        return InvalidPod((), tuple(_excess(spec, labels, annotations)))
    reading, placement = read_demand(spec, weights), read_placement(spec)
    demand = reading.demand
    excess = placement.excess or (placement.undecided_excess if annotation is None else ())
    if demand is None or reading.problems or placement.problems or reading.excess or excess:
        return _invalid(spec, reading, placement.problems, excess)
    if annotations and keys.GANG in annotations and (problem := gang_problem(metadata)) is not None:
        return _invalid(spec, reading, (problem,), ())
    gang = gang_of(metadata, spec, namespace=namespace)
    controller = controller_reference(metadata)
    is_spread_by_default = (
        controller is not None and controller.kind in _SPREAD_BY_DEFAULT and not placement.spreading.rules
    )
    has_bound_volumes = _has_bound_volumes(spec)
    constraints = placement.constraints
    if has_bound_volumes:
        constraints = with_volumes(constraints, spec, namespace)
    is_open = placement.is_open or reading.opens_ports or has_bound_volumes or bool(spec.resource_claims)
    return Pod(
        namespace=namespace,
        demand=demand,
        name=metadata.name or name,
        uid=metadata.uid or uid,
        labels=labels,
        annotations=annotations,
        owner=owner_of(controller),
        constraints=constraints,
        has_open_constraints=is_open,
        topology=placement.topology(labels),
        is_spread_by_default=is_spread_by_default,
        handling=handling_of(spec, annotations, controller),
        node_name=spec.node_name or None,
        requires=_listed(requires) if requires else frozenset(),
        pool=pool,
        team_label=labels.get(keys.TEAM),
        tier_label=labels.get(keys.TIER),
        decision_annotation=annotation,
        priority_class=spec.priority_class_name,
        claims=claim_refs(spec, None) if spec.resource_claims else (),
        shares_by="" if demand.counted is None else scheduler_of(spec),
        slices=placement.slices,
        grace_seconds=grace_seconds(spec),
        is_queued=is_queued(spec),
        foreign_gates=_foreign_gates(spec) if spec.scheduling_gates else (),
        gang=gang,
        domain_problem=domain_problem(annotations, is_in_gang=gang is not None or controller is not None),
        gang_problem=ignored_of_gang(annotations, gang, has_controller=controller is not None),
        run_time=stated_run_time(annotations),
        replica=replica_of(metadata, controller, namespace, spec.scheduling_group),
    )


def grace_seconds(spec: objects.PodSpec) -> int:
    """Return how long a pod may run after its deletion, by its own spec."""
    grace = spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if grace is None else grace


def is_queued(spec: objects.PodSpec | objects.PodGates) -> bool:
    """Whether a pod has Fairgate's scheduling gate."""
    return spec.scheduling_gates is not None and any(gate.name == keys.QUEUE_GATE for gate in spec.scheduling_gates)


def _foreign_gates(spec: objects.PodSpec) -> tuple[str, ...]:
    """Return the first gates of other controllers: a pod may have any number, and messages name them."""
    names = (gate.name[:_MAX_NAME] for gate in spec.scheduling_gates or () if gate.name != keys.QUEUE_GATE)
    return tuple(islice(names, _MAX_GATES))


def has_ended(pod: objects.Pod) -> bool:
    """Whether a pod has ended: it may stay in the API for days and uses nothing."""
    return pod.status is not None and pod.status.phase in ENDED_PHASES


def fallback_uid(namespace: str, name: str) -> Uid:
    """Return an ID for a pod without a UID: world files and reviews written by hand have none."""
    return Uid(f"{namespace}/{name}")


def uid_of(metadata: objects.ObjectMeta, namespace: str) -> Uid:
    """Return the UID of a pod in a namespace, or an ID for one without."""
    return Uid(metadata.uid) if metadata.uid else fallback_uid(namespace, metadata.name)


def claim_refs(spec: objects.PodSpec, status: objects.PodStatus | None) -> tuple[ClaimRef, ...]:
    """Return references to the claims of a pod."""
    created = {s.name: s.resource_claim_name or "" for s in (status and status.resource_claim_statuses) or ()}
    group = (spec.scheduling_group.pod_group_name or "") if spec.scheduling_group is not None else ""
    return tuple(
        ClaimRef(
            claim=entry.resource_claim_name or created.get(entry.name, ""),
            template=entry.resource_claim_template_name or "",
            group=group if entry.resource_claim_template_name else "",
            entry=entry.name,
        )
        for entry in spec.resource_claims or ()
    )


def _excess(spec: objects.PodSpec, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[str]:
    containers = len(spec.containers) + len(spec.init_containers or ())
    yield from bounds.excess("spec.containers: number", containers, bounds.CONTAINERS)
    yield from bounds.excess("metadata.labels: number", len(labels), bounds.LABELS)
    yield from _claims_excess(spec)
    for key, maximum in (
        (keys.DECISION, bounds.DECISION_BYTES),
        (keys.REQUIRES, bounds.REQUEST_BYTES),
        (keys.POOL, bounds.REQUEST_BYTES),
    ):
        yield from bounds.excess(f"annotation {key}: length in characters", len(annotations.get(key, "")), maximum)


def _claims_excess(spec: objects.PodSpec) -> Iterator[str]:
    entries = spec.resource_claims or ()
    yield from bounds.excess("spec.resourceClaims: number", len(entries), bounds.CLAIMS)
    names = ((each.name, each.resource_claim_name, each.resource_claim_template_name) for each in entries)
    length = sum(len(name or "") for each in names for name in each)
    yield from bounds.excess("spec.resourceClaims: length of all names in characters", length, bounds.CLAIM_NAMES)


def _invalid(spec: objects.PodSpec, reading: Reading, problems: tuple[str, ...], excess: tuple[str, ...]) -> InvalidPod:
    demand = reading.demand
    is_foreign = demand is not None and not (demand.gpus or demand.strange or spec.resource_claims)
    return InvalidPod(reading.problems + problems, reading.excess + excess, is_foreign)


def controller_reference(metadata: objects.ObjectMeta) -> objects.OwnerReference | None:
    """Return the owner reference of a pod's controller, or None."""
    for owner in metadata.owner_references or ():
        if owner.controller:
            return owner
    return None


def owner_of(controller: objects.OwnerReference | None) -> Owner | None:
    """Translate a pod's controller."""
    if controller is None:
        return None
    return _cached_owner(controller.kind[:_MAX_KIND], controller.name[:_MAX_NAME])


def handling_of(
    spec: objects.PodSpec, annotations: Mapping[str, str], controller: objects.OwnerReference | None
) -> Handling:
    """Return how Fairgate handles a pod, by its scheduler, node and controller."""
    if keys.MIRROR in annotations:
        return Handling.MIRROR
    if controller is not None and controller.kind == "DaemonSet" and controller.api_version.startswith("apps/"):
        return Handling.DAEMON_SET
    if spec.scheduler_name and spec.scheduler_name != keys.DEFAULT_SCHEDULER:
        return Handling.FOREIGN_SCHEDULER
    return Handling.NODE_NAME if spec.node_name else Handling.MANAGED


def scheduler_of(spec: objects.PodSpec) -> str:
    """Return the name of a pod's scheduler."""
    return spec.scheduler_name or keys.DEFAULT_SCHEDULER


def _has_bound_volumes(spec: objects.PodSpec) -> bool:
    """Whether volumes may restrict the nodes in a way that is not evaluated here."""
    return any(each.persistent_volume_claim is not None or each.ephemeral is not None for each in spec.volumes or ())


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def unix_seconds(timestamp: str) -> int:
    """Return an RFC 3339 time as Unix seconds; 0 if it is malformed."""
    return _cached_seconds(timestamp) if len(timestamp) <= _MAX_TIME else 0


@lru_cache(maxsize=4096)  # pods are created in bursts, and a relist has the same times again
def _cached_seconds(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except (ValueError, OverflowError):
        return 0


# The patch of an existing pod's tier, and of the reason code in its decision.


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
