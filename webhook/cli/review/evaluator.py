"""Evaluates the objects of a review in order against one world, each charged before the next."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from webhook.cli.formatting import plural
from webhook.cli.review.ample_nodes import AmpleNodes
from webhook.cli.review.existing_pods import ExistingPods
from webhook.cli.review.results import Patch, Place, PodGroup, WorkloadResult
from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.names import UNASSIGNED, Namespace, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.pod import CONTROLLER, Handling, Pod, Requester
from webhook.core.model.policy import OnWorkloadLimit
from webhook.core.model.reason import LIMIT_CODES, Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.model import PodSet, Unknown, Workload, mapping, text
from webhook.kube.workloads.parts import judge
from webhook.kube.workloads.related import Related
from webhook.kube.workloads.table import kind_table
from webhook.kube.world_file.stream import Document
from webhook.simulation.simulate import Answer, Simulator, Template, read_template

_ABOUT_NODES: Final = frozenset({Code.NO_ROOM_NOW, Code.NEVER_FITS})
_MAX_PODS: Final = 1_000_000
"""Pods of a role that are evaluated; further ones would have the outcome of the last."""
_PARTIAL_GANG: Final = "its pods start only together: while some of them are refused, the others hold GPUs and wait"


@dataclass(frozen=True, slots=True)
class Item:
    """An object to review, and its place. `object` may be a part of the document (of a List, of an AdmissionReview)."""

    place: Place
    document: Document
    object: Mapping[str, Any]
    namespace: str  # of an object without one
    requester: Requester | None = None  # that of an AdmissionReview


class Evaluator:
    """Evaluates items in order. `room_is_known`: the world has the cluster's nodes."""

    def __init__(
        self, world: World, *, related: Related, requester: Requester, room_is_known: bool, now_text: str
    ) -> None:
        self._world = world
        self._related = related
        self._requester = requester
        self._ample_nodes = None if room_is_known else AmpleNodes(world)
        self._simulator = Simulator(world, now_text=now_text)
        self._kinds = kind_table(world.policy.workloads.kinds)
        self._existing = ExistingPods(world.pods())
        self._seen: dict[tuple[str, str, str, str], tuple[Place, list[Uid]]] = {}

    def evaluate(self, item: Item) -> WorkloadResult | None:
        """Return what would happen to an object's pods; None if it creates none."""
        expanded = expand(item.object, kinds=self._kinds, related=self._related, namespace=item.namespace)
        if expanded is None:
            return None
        if isinstance(expanded, Unknown):
            return _unknown_kind(item, expanded, _gpu_line(item, {}, self._world.policy.resources.keys()))
        notes, warnings = tuple(self._remove_existing(item, expanded)), list(expanded.warnings)
        whole = self._check_workload(item, expanded)
        warnings += [f"{reason.text} ({reason.code})" for reason in whole]
        refusal = whole if self._world.policy.workloads.on_limit is OnWorkloadLimit.REJECT else ()
        refusal = tuple(reason for reason in refusal if reason.code in LIMIT_CODES)
        taken = len(self._simulator.charged)
        groups: list[PodGroup] = []
        for pod_set in expanded.later:
            evaluated = self._evaluate_pods(item, expanded, pod_set, refusal, warnings)
            groups += (group for group in evaluated if group.outcome is not Outcome.ADMIT)
            self._remove_since(taken)
        for pod_set in expanded.pod_sets:
            groups += self._evaluate_pods(item, expanded, pod_set, refusal, warnings)
        self._seen[_identity(expanded)] = (item.place, self._simulator.charged[taken:])
        outcomes = {group.outcome for group in groups}
        if expanded.is_gang and Outcome.DENY in outcomes and len(outcomes) > 1:
            warnings.append(_PARTIAL_GANG)
        return WorkloadResult(
            item.place,
            expanded.api_version,
            expanded.kind,
            expanded.namespace,
            expanded.name,
            tuple(groups),
            tuple(dict.fromkeys(warnings)),
            notes,
        )

    def _check_workload(self, item: Item, workload: Workload) -> tuple[Reason, ...]:
        """Return why all pods together can never run, as the webhook's warning does; nothing for a bare pod."""
        if workload.kind == "Pod":
            return ()
        codes = LIMIT_CODES | {Code.DEADLINE_IN_LINE, Code.GANG_IGNORED}
        if self._ample_nodes is None:
            codes |= {Code.NEVER_FITS, Code.TOPOLOGY_IGNORED}
        found = judge(workload, item.requester or self._requester, self._world)
        return tuple(reason for reason in found if reason.code in codes)

    def _evaluate_pods(
        self, item: Item, workload: Workload, pod_set: PodSet, refusal: tuple[Reason, ...], warnings: list[str]
    ) -> list[PodGroup]:
        namespace = Namespace(workload.namespace)
        line = _gpu_line(item, pod_set.template, self._world.policy.resources.keys())
        blank = PodGroup(pod_set.role, pod_set.count, Outcome.SKIP, (), line, team=self._team(namespace))
        if not pod_set.template:
            return [replace(blank, reasons=(_unknown_count(pod_set),))]
        template = read_template(pod_set.template, namespace=namespace, world=self._world)
        if isinstance(template, Deny):
            return [replace(blank, outcome=Outcome.DENY, reasons=template.reasons)]
        count = self._count(pod_set, template.pod)
        blank = replace(blank, count=count, demand=template.pod.demand)
        if refusal and template.pod.demand.gpus:
            return [replace(blank, outcome=Outcome.DENY, reasons=refusal)]
        if count is None and template.pod.demand.gpus:
            return [replace(blank, reasons=(_unknown_count(pod_set),))]
        if count == 0:
            return [replace(blank, outcome=Outcome.ADMIT)]
        if self._ample_nodes is not None:
            self._ample_nodes.make_room(template.pod)
        groups = _Groups(blank, shows_nodes=self._ample_nodes is None)
        for answer in self._simulator.simulate(
            template, 1 if count is None else count, requester=self._requester_of(item, workload, template.pod)
        ):
            groups.add(answer, template)
        warnings += groups.warnings()
        return [group if count is not None else replace(group, count=None) for group in groups.found.values()]

    def _requester_of(self, item: Item, workload: Workload, pod: Pod) -> Requester:
        """Return who will create a pod: the user of its AdmissionReview, a workload's controller, or the user."""
        if workload.kind == "Pod" and item.requester is not None:
            return item.requester
        return self._requester if pod.owner is None else CONTROLLER

    def _count(self, pod_set: PodSet, pod: Pod) -> int | None:
        """Return the number of pods at peak; of a DaemonSet one per node that it may use."""
        if pod.handling is Handling.DAEMON_SET and self._ample_nodes is None:
            return self._world.fleet.matching(pod.constraints).bit_count()
        if pod_set.problem is not None or pod_set.count is None:
            return None
        return min(pod_set.count, _MAX_PODS)

    def _team(self, namespace: Namespace) -> TeamName | None:
        team = self._world.tenancy(namespace).team_name
        return None if team == UNASSIGNED else team

    def _remove_since(self, since: int) -> None:
        """Remove the pods that were charged since then, because they do not run at the same time as later ones."""
        for uid in self._simulator.charged[since:]:
            self._world.remove_pod(uid)
        del self._simulator.charged[since:]

    def _remove_existing(self, item: Item, workload: Workload) -> list[str]:
        """Remove the object's existing pods: applying it again replaces them."""
        if "name" not in mapping(item.object.get("metadata")):
            return []
        notes = []
        place, before = self._seen.get(_identity(workload), (None, []))
        if place is not None:
            notes.append(f"replaces the same object in {place.source}:{place.line}")
        running = self._existing.take(workload)
        if running:
            notes.append(f"replaces {plural(len(running), 'existing pod')}")
        for uid in (*before, *running):
            self._world.remove_pod(uid)
        return notes


class _Groups:
    """Groups pods with equal outcomes."""

    def __init__(self, blank: PodGroup, *, shows_nodes: bool) -> None:
        self.found: dict[object, PodGroup] = {}
        self._blank = blank
        self._shows_nodes = shows_nodes
        self._nodes: dict[object, dict[NodeName, None]] = {}
        self._warned: dict[Reason, int] = {}
        self._total = 0

    def add(self, answer: Answer, template: Template) -> None:
        """Add an answer for one or more pods."""
        outcome, reasons, tier, warnings = _outcome_of(answer.decision)
        demand = answer.decision.demand if isinstance(answer.decision, Admit) else self._blank.demand
        key = (outcome, tier, reasons, demand)
        for warning in warnings:
            if self._shows_nodes or warning.code not in _ABOUT_NODES:
                self._warned[warning] = self._warned.get(warning, 0) + answer.count
        self._total += answer.count
        nodes = self._nodes.setdefault(key, {})
        if answer.node is not None and (self._shows_nodes or template.pod.node_name):
            nodes[answer.node] = None
        known = self.found.get(key)
        patch = None if answer.patched is None else Patch(template.written, answer.patched)
        self.found[key] = replace(
            known or self._blank,
            outcome=outcome,
            demand=demand,
            reasons=reasons,
            tier=tier,
            team=_team_of(answer.decision) or self._blank.team,
            count=answer.count + (known.count or 0 if known is not None else 0),
            nodes=tuple(nodes),
            patch=known.patch if known is not None else patch,
        )

    def warnings(self) -> list[str]:
        """Return the warnings, with the number of pods of each if it is not all of them."""
        role = f" of role {self._blank.role}" if self._blank.role else ""
        return [
            f"{f'{times} of {self._total} pods{role}: ' if times != self._total else ''}{warning.text} ({warning.code})"
            for warning, times in self._warned.items()
        ]


def _outcome_of(decision: Decision) -> tuple[Outcome, tuple[Reason, ...], Tier | None, tuple[Reason, ...]]:
    match decision:
        case Admit():
            return Outcome.ADMIT, (decision.reason,), decision.charge.tier, decision.warnings
        case NotApplicable():
            tier = None if decision.charge is None else decision.charge.tier
            return Outcome.ADMIT, (decision.reason,), tier, decision.warnings
        case Queue():
            return Outcome.QUEUE, (decision.reason,), None, decision.warnings
        case Deny():
            return Outcome.DENY, decision.reasons, None, ()
        case Retry():
            return Outcome.SKIP, (decision.reason,), None, ()
        case _ as never:
            assert_never(never)


def _team_of(decision: Decision) -> TeamName | None:
    if isinstance(decision, Queue):
        return decision.team
    return decision.charge.team if isinstance(decision, Admit | NotApplicable) and decision.charge is not None else None


def _unknown_kind(item: Item, unknown: Unknown, line: int) -> WorkloadResult:
    metadata = mapping(item.object.get("metadata"))
    group = PodGroup("", None, Outcome.SKIP, (Reason(Code.UNKNOWN_KIND, unknown.reason),), line)
    return WorkloadResult(
        item.place,
        text(item.object.get("apiVersion")),
        text(item.object.get("kind")),
        text(metadata.get("namespace")),
        text(metadata.get("name")) or text(metadata.get("generateName")),
        (group,),
    )


def _unknown_count(pod_set: PodSet) -> Reason:
    return Reason(Code.OPEN_COUNT, pod_set.problem or "the manifest does not say how many pods there will be")


def _gpu_line(item: Item, template: Mapping[str, Any], counted: Collection[ResourceName]) -> int:
    """Return the line of a template's GPU request; the object's first line if there is none."""
    for value in (template.get("spec"), item.object):
        found = _line_below(item.document, value, counted)
        if found is not None:
            return found
    return item.place.line


def _line_below(document: Document, value: object, counted: Collection[ResourceName]) -> int | None:
    """Search in the order of the manifest; the template's parts are the document's own objects."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            for key in value:
                if key in counted and (line := document.line_of(value, key)) is not None:
                    return line
            stack += reversed(value.values())
        elif isinstance(value, list):
            stack += reversed(value)
    return None


def _identity(workload: Workload) -> tuple[str, str, str, str]:
    return workload.api_version.rpartition("/")[0], workload.kind, workload.namespace, workload.name
