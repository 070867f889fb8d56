"""Evaluates the objects of a review in order against one world, each charged before the next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from webhook.cli.review.answers import AmpleNodes
from webhook.cli.review.results import ExistingPods, GpuLines, Place, PodGroup, PodGroups, ReviewWarning, WorkloadResult
from webhook.core.admission.pod_rules import NO_SURGE
from webhook.core.devices.claim_users import ClaimKey, GroupEntry
from webhook.core.model.amounts import UNASSIGNED, GangId, Namespace, TeamName, Uid, plural, plural_gpus
from webhook.core.model.decision import Deny, Outcome, Queue
from webhook.core.model.pod import CONTROLLER, Handling, Pod, Requester
from webhook.core.model.policy import OnWorkloadLimit
from webhook.core.model.reasons import LIMIT_CODES, Code, Reason
from webhook.core.world.world import World
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.admission.trial_pods import Answer, GangRole, Simulator, judge_whole, waits_for_gang
from webhook.kube.kinds.gpu_requests import asking_annotation, unread_request
from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import Budget, BudgetSpentError, PodSet, Unknown, Workload, mapping, text
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects.bounds import shortened
from webhook.kube.workloads.expand import NOT_JUDGED, expand, judge
from webhook.kube.workloads.gang_size import plan_of_workload
from webhook.kube.world_file.stream import Document

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


class _Evaluated(NamedTuple):
    """What becomes of pods that run at the same time."""

    groups: list[PodGroup]
    warnings: list[ReviewWarning]
    notes: list[str]


class _Replaced(NamedTuple):
    """Pods that an object replaces: those of the same object earlier in the stream, and those of the world."""

    notes: list[str]
    seen: Sequence[Uid] = ()
    running: Sequence[Uid] = ()


@dataclass(slots=True)
class _Part:
    """The pods of one role, and what becomes of them."""

    blank: PodGroup
    template: Template
    count: int
    requester: Requester
    answers: list[Answer] = field(default_factory=list)


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
        self._existing = ExistingPods([*world.pods(), *(waiting.pod for waiting in world.waiting.all())])
        self._seen: dict[tuple[str, str, str, str], tuple[Place, list[Uid]]] = {}

    def evaluate(self, item: Item) -> WorkloadResult | None:
        """Return what would happen to an object's pods; None if it creates none."""
        budget = Budget()
        expanded = expand(
            item.object, kinds=self._kinds, related=self._related, namespace=item.namespace, budget=budget
        )
        if expanded is None:
            return None
        lines = GpuLines(item.document, item.object, self._world.policy.resources.keys(), line=item.place.line)
        if isinstance(expanded, Unknown):
            return _unknown_kind(item, expanded, lines.first())
        warnings = list(map(ReviewWarning, expanded.warnings))
        replaced = self._replaced(item, expanded)
        notes = replaced.notes
        if expanded.is_elsewhere:
            warnings, notes = [], [*expanded.warnings, *notes]
        of_update = [*self._judge_surge(item, expanded, lines)] if replaced.running else []
        for uid in (*replaced.seen, *replaced.running):
            self._world.remove_pod(uid)
        whole = self._check_workload(item, expanded, budget)
        warnings += map(ReviewWarning.of, whole)
        refusal = whole if self._world.policy.workloads.on_limit is OnWorkloadLimit.REJECT else ()
        refusal = tuple(reason for reason in refusal if reason.code in LIMIT_CODES)
        taken = len(self._simulator.created)
        evaluated = self._evaluate_together(item, expanded, expanded.pod_sets, refusal, lines)
        groups, notes = evaluated.groups, [*notes, *evaluated.notes]
        if expanded.is_at_most:
            most = sum(group.gpus for group in groups)
            warnings += [ReviewWarning(f"at most {plural_gpus(most)} at once: its steps run over time")] if most else []
            if not {group.outcome for group in groups} <= {Outcome.ADMIT, Outcome.SKIP}:
                self._remove_since(taken)
                evaluated = self._one_by_one(item, expanded, refusal, lines)
                groups = evaluated.groups
        warnings += evaluated.warnings
        self._seen[_identity(expanded)] = (item.place, self._simulator.created[taken:])
        if {group.outcome for group in groups} == {Outcome.ADMIT}:
            warnings += map(ReviewWarning, of_update)
        outcomes = {group.outcome for group in groups}
        if expanded.is_gang and Outcome.DENY in outcomes and len(outcomes) > 1:
            warnings.append(ReviewWarning(_PARTIAL_GANG))
        if not (expanded.is_elsewhere or any(group.asks_gpus for group in groups)):
            warnings += map(ReviewWarning, _unread(item, expanded))
        return WorkloadResult(
            item.place,
            expanded.api_version,
            expanded.kind,
            expanded.namespace,
            expanded.name,
            tuple(groups),
            tuple(dict.fromkeys(warnings)),
            tuple(notes),
        )

    def _judge_surge(self, item: Item, workload: Workload, lines: GpuLines) -> Iterator[str]:
        """Yield a warning if the first pods of a rolling update cannot run beside all that are replaced."""
        surge = workload.surge
        if surge is None:
            return
        (pod_set,) = workload.pod_sets
        before = len(self._simulator.created)
        found = self._evaluate_together(item, workload, (replace(pod_set, count=surge.number),), (), lines).groups
        self._remove_since(before)
        for group in found:
            if not group.asks_gpus or (group.outcome is Outcome.ADMIT and not _is_without_room(group)):
                continue
            effect = "be refused" if group.outcome is Outcome.DENY else "wait"
            never = ", and no old pod leaves before one of them runs" if surge.is_first else ""
            yield (
                f"of a rolling update, {plural(group.count or 0, 'pod')} (maxSurge) would {effect} beside the old ones"
                f"{never}: {NO_SURGE}"
            )

    def _check_workload(self, item: Item, workload: Workload, budget: Budget) -> tuple[Reason, ...]:
        """Return why all pods together can never run, as the webhook's warning does; nothing for a bare pod."""
        if workload.kind == "Pod":
            return ()
        codes = LIMIT_CODES | {Code.DEADLINE_IN_LINE, Code.GANG_IGNORED, Code.RUN_TIME_IGNORED, Code.MINIMUM_IGNORED}
        if self._ample_nodes is None:
            codes |= {Code.NEVER_FITS, Code.TOPOLOGY_IGNORED, Code.ANY_MODEL}
        found = judge(workload, item.requester or self._requester, self._world, budget)
        return tuple(reason for reason in found if reason.code in codes or reason == NOT_JUDGED)

    def _evaluate_together(
        self,
        item: Item,
        workload: Workload,
        pod_sets: Iterable[PodSet],
        refusal: tuple[Reason, ...],
        lines: GpuLines,
    ) -> _Evaluated:
        """Return what becomes of pods that run at the same time."""
        found: list[PodGroup | _Part] = []
        for pod_set in pod_sets:
            part = self._part(item, workload, pod_set, refusal, lines.of(pod_set.template))
            if isinstance(part, _Part):
                part.answers += self._simulate(part, part.count)
            found.append(part)
        notes = [*self._judge_gangs(item, [part for part in found if isinstance(part, _Part)])]
        groups: list[PodGroup] = []
        warnings: list[ReviewWarning] = []
        for part in found:
            if isinstance(part, PodGroup):
                groups.append(part)
                continue
            self._join_line(part)
            of_part = PodGroups(part.blank, shows_nodes=self._ample_nodes is None)
            for answer in part.answers:
                of_part.add(answer, part.template)
            warnings += of_part.warnings()
            pod = part.template.pod
            if not pod.demand.gpus and (key := asking_annotation(pod.annotations)):
                asks = f"annotation {shortened(key)} asks for GPUs, and no resource of the pod does: none is counted"
                warnings.append(ReviewWarning(asks))
            is_open = part.blank.count is None
            groups += (replace(group, count=None) if is_open else group for group in of_part.found.values())
        return _Evaluated(groups, warnings, notes)

    def _one_by_one(self, item: Item, workload: Workload, refusal: tuple[Reason, ...], lines: GpuLines) -> _Evaluated:
        """Return what becomes of one pod of each role by itself: the others of its workload may have ended."""
        groups: list[PodGroup] = []
        warnings: list[ReviewWarning] = []
        before = len(self._simulator.created)
        for pod_set in workload.pod_sets:
            of_role = self._evaluate_together(item, workload, (replace(pod_set, count=1),), refusal, lines)
            groups += (replace(group, count=pod_set.count) for group in of_role.groups)
            warnings += of_role.warnings
            self._remove_since(before)
        return _Evaluated(groups, warnings, [])

    def _part(
        self, item: Item, workload: Workload, pod_set: PodSet, refusal: tuple[Reason, ...], line: int
    ) -> "PodGroup | _Part":
        """Return the pods of a role, or what becomes of them where that does not depend on others."""
        namespace = Namespace(workload.namespace)
        blank = PodGroup(pod_set.role, pod_set.count, Outcome.SKIP, (), line, team=self._team(namespace))
        if not pod_set.template:
            return replace(blank, reasons=(_unknown_count(pod_set),))
        if pod_set.shared:
            group = ClaimKey("group", namespace, workload.name)
            self._world.set_group(group, frozenset(GroupEntry(*entry) for entry in pod_set.shared))
        template = read_template(pod_set.template, namespace=namespace, world=self._world, is_new=True)
        if isinstance(template, Deny):
            return replace(blank, outcome=Outcome.DENY, reasons=template.reasons)
        count = self._count(pod_set, template.pod)
        blank = replace(blank, count=count, demand=template.pod.demand)
        if refusal and template.pod.demand.gpus:
            return replace(blank, outcome=Outcome.DENY, reasons=refusal)
        if count is None and template.pod.demand.gpus:
            return replace(blank, reasons=(_unknown_count(pod_set),))
        if count == 0:
            return replace(blank, outcome=Outcome.ADMIT)
        requester = self._requester_of(item, workload, template.pod)
        return _Part(blank, template, 1 if count is None else count, requester)

    def _simulate(self, part: "_Part", count: int) -> Iterator[Answer]:
        if self._ample_nodes is not None:
            self._ample_nodes.make_room(part.template.pod)
        return self._simulator.simulate(part.template, count, requester=part.requester)

    def _judge_gangs(self, item: Item, parts: Iterable["_Part"]) -> Iterator[str]:
        """Judge the gangs whose pods wait for each other, each as a whole; yield where those go that start."""
        gangs: dict[GangId, list[_Part]] = {}
        for part in parts:
            gang = part.template.pod.gang
            if gang is not None and waits_for_gang(part.answers[0]) is not None:
                gangs.setdefault(gang.id, []).append(part)
        budget = Budget()
        for of_gang in gangs.values():
            if self._ample_nodes is not None:
                self._ample_nodes.make_room(*(part.template.pod for part in of_gang))
            roles = [GangRole(part.template, part.count, part.answers[0]) for part in of_gang]
            plan = plan_of_workload(
                item.object,
                of_gang[0].template.pod,
                kinds=self._kinds,
                namespace=item.namespace,
                weights=self._world.policy.resources,
                budget=budget,
            )
            whole = judge_whole(roles, plan, self._simulator)
            if whole is None:
                continue
            for part, answers, later in zip(of_gang, whole.answers, whole.later, strict=True):
                part.answers = [*answers, *(self._simulate(part, later) if later else ())]
            if self._ample_nodes is None and whole.place is not None and whole.place.name:
                number = sum(map(len, whole.answers))
                yield f"its {plural(number, 'pod')} start together in {whole.place.name}, which {whole.place.why}"

    def _join_line(self, part: "_Part") -> None:
        """Put the members of a gang that wait for it in the queue; those for which there is no place are refused."""
        found: list[Answer] = []
        for answer in part.answers:
            decision = answer.decision
            if not isinstance(decision, Queue) or answer.place:
                found.append(answer)
                continue
            queued = self._simulator.join_line(answer, decision, part.template.pod)
            found += [queued] if queued.count else []
            if (rest := answer.count - queued.count) > 0:
                found += self._simulate(part, rest)
        part.answers = found

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
        for uid in self._simulator.created[since:]:
            self._world.remove_pod(uid)
        del self._simulator.created[since:]

    def _replaced(self, item: Item, workload: Workload) -> _Replaced:
        """Return the object's existing pods, which applying it again replaces."""
        if "name" not in mapping(item.object.get("metadata")):
            return _Replaced([])
        notes = []
        place, seen = self._seen.get(_identity(workload), (None, []))
        if place is not None:
            notes.append(f"replaces the same object in {place.source}:{place.line}")
        running = self._existing.take(workload)
        if running:
            notes.append(f"replaces {plural(len(running), 'existing pod')}")
        return _Replaced(notes, seen, running)


def _is_without_room(group: PodGroup) -> bool:
    return any(reason.code in (Code.NO_ROOM_NOW, Code.NEVER_FITS) for reason in group.reasons)


def _unread(item: Item, workload: Workload) -> Iterator[str]:
    """Yield a warning if an operator's object asks for GPUs in a field that is not read, and its pods request none."""
    try:
        found = unread_request(item.object, Budget()) if "." in workload.api_version.partition("/")[0] else ""
    except BudgetSpentError:
        return
    if found:
        yield f"it asks for GPUs at {shortened(found)}, where no request of its pods is read: none is counted"


def _unknown_kind(item: Item, unknown: Unknown, line: int) -> WorkloadResult:
    metadata = mapping(item.object.get("metadata"))
    code = Code.TOO_LARGE if unknown.is_too_large else Code.UNKNOWN_KIND
    group = PodGroup("", None, Outcome.SKIP, (Reason(code, "{problem}", {"problem": unknown.reason}),), line)
    return WorkloadResult(
        item.place,
        text(item.object.get("apiVersion")),
        text(item.object.get("kind")),
        text(metadata.get("namespace")),
        text(metadata.get("name")) or text(metadata.get("generateName")),
        (group,),
    )


def _unknown_count(pod_set: PodSet) -> Reason:
    if pod_set.problem is None:
        return Reason(Code.OPEN_COUNT, "the manifest does not say how many pods there will be")
    return Reason(Code.OPEN_COUNT, "{problem}", {"problem": pod_set.problem})


def _identity(workload: Workload) -> tuple[str, str, str, str]:
    return workload.api_version.rpartition("/")[0], workload.kind, workload.namespace, workload.name
