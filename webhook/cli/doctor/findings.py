"""What a check found: fine, wrong with a remedy, or not to be seen with the rights that there are."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HEALTHY: Final = 0
UNHEALTHY: Final = 1
NOT_SEEN: Final = 2


class Check(StrEnum):
    """The checks, in the order in which they are shown."""

    SERVER = "server"
    LEADER = "leader"
    EVICTOR = "evictor"
    POLICY = "policy"
    CERTIFICATES = "certificates"
    WEBHOOKS = "webhooks"
    REACHABLE = "reachable"
    GUARDS = "guards"
    LEDGER = "ledger"


class State(StrEnum):
    """How a check ended. `skipped`: there is nothing to check in this installation."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found; `remedy` is what to do, "" where nothing is to be done."""

    check: Check
    state: State
    message: str
    remedy: str = ""


def ok(check: Check, message: str) -> list[Finding]:
    """Say that a check found nothing wrong."""
    return [Finding(check, State.OK, message)]


def skipped(check: Check, message: str) -> list[Finding]:
    """Say why there is nothing to check."""
    return [Finding(check, State.SKIPPED, message)]


def unknown(check: Check, message: str, remedy: str) -> list[Finding]:
    """Say why a check could not be made, and what would make it possible."""
    return [Finding(check, State.UNKNOWN, message, remedy)]


def wrong(check: Check, messages: Iterable[str], remedy: str) -> list[Finding]:
    """Say what is wrong, with one remedy for all of it."""
    return [Finding(check, State.WRONG, message, remedy) for message in messages]


def lacking(check: Check, right: str, *, role: str) -> list[Finding]:
    """Say which right a check needs."""
    return unknown(check, f"not checked: you lack the right to {right}", f"the ClusterRole {role} grants it")


def exit_status(findings: Iterable[Finding]) -> int:
    """Find the exit status: what is wrong outweighs what could not be looked at."""
    states = {finding.state for finding in findings}
    return UNHEALTHY if State.WRONG in states else NOT_SEEN if State.UNKNOWN in states else HEALTHY
