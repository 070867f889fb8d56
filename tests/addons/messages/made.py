"""Alerts and targets for tests, with defaults."""

from typing import Any

from webhook.addons.messages.alerts import Severity, State, Subject, bounded
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import NotifyKind, NotifyRules, NotifyTarget

NOW = 1_795_659_000
EVICTIONS = Subject(NotifyKind.EVICTIONS, "vision")
TROUBLE = Subject(NotifyKind.TROUBLE, "ledger", Severity.CRITICAL, "a")
TARGET = NotifyTarget("t", url="https://127.0.0.1:1/", interval_seconds=600)
BEHIND = State("the ledger is behind", ("behind",))


def evicted(name: str = "sweep-17") -> str:
    """The line of an evicted pod."""
    return bounded(f"2026-11-26T02:10:00Z: vision/{name} of 8 GPUs: team nlp takes its share back for a pod of 8 GPUs")


def policy(*targets: NotifyTarget, **more: Any) -> Policy:
    """A policy with these targets."""
    return Policy(notify=NotifyRules(targets, **more))
