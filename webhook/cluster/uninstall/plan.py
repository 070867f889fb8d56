"""What an uninstallation does, in which order. Pure.

At every moment GPU pods can be created, and pods in line are served by a leader or can be let go. The webhooks are
deleted first, while their servers still answer. Then no process leads for as long as the uninstallation runs. Pods in
line are let go before the processes stop, and once more after that: a request may have been on its way. Reports, which
say what runs, and Leases are deleted last.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.cluster.uninstall.scope import Scope
from webhook.cluster.uninstall.survey import Survey
from webhook.kube.pod.let_go import MarkedPod
from webhook.kube.registration.inventory import DEFINITIONS, HELD_ROOM, REGISTERED_GUARDS, ROLES, WEBHOOKS, OwnedObject


class Step(StrEnum):
    """The steps, in their order."""

    WEBHOOKS = "webhooks"
    LEADERS = "leaders"
    GUARDS = "guards"
    LINE = "line"
    HOLDS = "holds"
    NOTICES = "notices"
    PROCESSES = "processes"
    DEFINITIONS = "definitions"
    ROLES = "roles"
    LEASES = "leases"
    CERTIFICATES = "certificates"


class PlannedStep(NamedTuple):
    """A step, what it does, and with what. One that does nothing on purpose `is_kept`."""

    step: Step
    does: str
    objects: tuple[str, ...]
    is_kept: bool = False


KEPT_LINE: Final = (
    "stay in line; none of them starts until Fairgate is installed again with a policy that has a queue, or an admin "
    "removes their gates"
)
_DOES: Final = {
    Step.WEBHOOKS: "deleted; GPU pods are created as without Fairgate, and none joins the line",
    Step.LEADERS: "taken over; servers and evictors change nothing more by themselves",
    Step.GUARDS: "deleted; the API server no longer protects Fairgate's keys",
    Step.LINE: "let go, the oldest of each namespace first; each starts where it finds room, whatever limits say",
    Step.HOLDS: "opened; held nodes take any pod",
    Step.NOTICES: "withdrawn; these pods are not evicted",
    Step.PROCESSES: "stopped, those in the cluster by scaling to zero",
    Step.DEFINITIONS: "deleted, with ledgers, held nodes and reports",
    Step.ROLES: "deleted",
    Step.LEASES: "deleted",
    Step.CERTIFICATES: "deleted",
}


def plan(found: Survey, scope: Scope) -> tuple[PlannedStep, ...]:
    """Return all steps in order; those with nothing to do have no objects."""
    line = _texts(found.line)
    definitions = _owned(found, DEFINITIONS)
    stopped = (*(each.text for each in found.workloads if each.replicas), *found.processes)
    return (
        _planned(Step.WEBHOOKS, _owned(found, WEBHOOKS)),
        _planned(Step.LEADERS, tuple(each.text for each in found.leases)),
        _planned(Step.GUARDS, _owned(found, REGISTERED_GUARDS)),
        PlannedStep(Step.LINE, KEPT_LINE, line, is_kept=True) if scope.keeps_line else _planned(Step.LINE, line),
        _planned(Step.HOLDS, (*(f"Node {name}" for name in found.held_nodes), *_owned(found, (HELD_ROOM,)))),
        _planned(Step.NOTICES, _texts(found.notices)),
        _planned(Step.PROCESSES, stopped),
        PlannedStep(Step.DEFINITIONS, "stay, with their objects", definitions, is_kept=True)
        if scope.keeps_definitions
        else _planned(Step.DEFINITIONS, definitions),
        _planned(Step.ROLES, _owned(found, ROLES)),
        _planned(Step.LEASES, tuple(each.text for each in found.leases)),
        _planned(Step.CERTIFICATES, tuple(each.text for each in found.secrets)),
    )


def _planned(step: Step, objects: tuple[str, ...]) -> PlannedStep:
    return PlannedStep(step, _DOES[step], objects)


def _owned(found: Survey, wanted: Iterable[OwnedObject]) -> tuple[str, ...]:
    return tuple(each.text for each in found.among(wanted))


def _texts(pods: Iterable[MarkedPod]) -> tuple[str, ...]:
    return tuple(f"Pod {each.text}" for each in pods)
