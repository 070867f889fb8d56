"""What becomes of the pods of one role: groups of those with equal outcomes, and the warnings on them."""

from dataclasses import replace
from typing import Final, assert_never

from webhook.cli.review.results import NO_PLACES, Patch, PodGroup, ReviewWarning
from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.names import NodeName, TeamName
from webhook.core.model.reason import Code, Reason, cause_of, waits_for
from webhook.core.model.tier import Tier
from webhook.simulation.simulate import Answer, Template

_ABOUT_NODES: Final = frozenset({Code.NO_ROOM_NOW, Code.NEVER_FITS})


class PodGroups:
    """The pods of a role, grouped by outcome. Without `shows_nodes` it is not known which nodes there are."""

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
        places = range(answer.place, answer.place + answer.count) if answer.place else NO_PLACES
        if known is not None and known.places:
            places = range(known.places.start, places.stop)
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
            places=places,
        )

    def warnings(self) -> list[ReviewWarning]:
        """Return the warnings, with the number of pods of each if it is not all of them."""
        role = f" of role {self._blank.role}" if self._blank.role else ""
        return [
            ReviewWarning.of(warning, about="" if times == self._total else f"{times} of {self._total} pods{role}: ")
            for warning, times in self._warned.items()
        ]


def _outcome_of(decision: Decision) -> tuple[Outcome, tuple[Reason, ...], Tier | None, tuple[Reason, ...]]:
    match decision:
        case Admit():
            return Outcome.ADMIT, (decision.reason,), decision.charge.tier, decision.warnings
        case NotApplicable():
            tier = None if decision.charge is None else decision.charge.tier
            return Outcome.ADMIT, (decision.reason,), tier, decision.warnings
        case Queue(reason=reason):  # the place differs from pod to pod
            return Outcome.QUEUE, (waits_for(reason.code, cause_of(reason)),), None, decision.warnings
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
