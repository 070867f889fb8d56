"""The result of a check: ok, wrong with a remedy, skipped, or unknown because a right is missing."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

import msgspec

HEALTHY: Final = 0
UNHEALTHY: Final = 1
INCOMPLETE: Final = 2


class Check(StrEnum):
    """The checks in display order."""

    KUBERNETES = "kubernetes"
    SERVER = "server"
    LEADER = "leader"
    EVICTOR = "evictor"
    POLICY = "policy"
    ROOM = "room"
    CERTIFICATES = "certificates"
    WEBHOOKS = "webhooks"
    REACHABLE = "reachable"
    GUARDS = "guards"
    LEDGER = "ledger"
    PODS = "pods"
    NODES = "nodes"
    IDLE = "idle"
    AUTOSCALERS = "autoscalers"
    MINIMUMS = "minimums"
    NOTIFY = "notify"
    COEXISTENCE = "coexistence"


class State(StrEnum):
    """The result of a check. `skipped`: there is nothing to check, or only an admin can."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """One result of a check."""

    check: Check
    state: State
    message: str
    remedy: Annotated[str, msgspec.Meta(description="what to do; empty for nothing")]


def ok(check: Check, message: str) -> list[Finding]:
    """Return the result of a check that found no problem."""
    return [Finding(check, State.OK, message, "")]


def skipped(check: Check, message: str) -> list[Finding]:
    """Return why there is nothing to check."""
    return [Finding(check, State.SKIPPED, message, "")]


def unknown(check: Check, message: str, remedy: str) -> list[Finding]:
    """Return why a check was not possible, and what would make it possible."""
    return [Finding(check, State.UNKNOWN, message, remedy)]


def wrong(check: Check, messages: Iterable[str], remedy: str) -> list[Finding]:
    """Return problems with a common remedy."""
    return [Finding(check, State.WRONG, message, remedy) for message in messages]


def missing_right(check: Check, right: str, *, role: str) -> list[Finding]:
    """Return which right a check needs, and the ClusterRole that grants it."""
    return unknown(check, f"not checked: you lack the right to {right}", f"the ClusterRole {role} grants it")


def exit_status(findings: Iterable[Finding]) -> int:
    """Return the exit status: a problem takes precedence over an unknown."""
    states = {finding.state for finding in findings}
    return UNHEALTHY if State.WRONG in states else INCOMPLETE if State.UNKNOWN in states else HEALTHY
