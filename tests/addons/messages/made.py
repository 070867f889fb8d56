"""Messages and targets for tests, with defaults."""

from typing import Any

from webhook.addons.messages.delivery import Item, Message, MessageSubject, Phase, Severity, State, Subject, item
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import NotifyKind, NotifyRules, NotifyTarget

NOW = 1_795_659_000
EVICTIONS = Subject(NotifyKind.EVICTIONS, "vision")
TROUBLE = Subject(NotifyKind.TROUBLE, "ledger")
TARGET = NotifyTarget("t", url="https://127.0.0.1:1/", interval_seconds=600)
BEHIND = State(Severity.CRITICAL, "the ledger is behind", (item("a: behind"),))


def evicted(name: str = "sweep-17", **more: Any) -> Item:
    """An evicted pod."""
    text = more.pop("text", "team nlp takes its share back for a pod of 8 GPUs")
    return item(text, at="2026-11-26T02:10:00Z", namespace="vision", name=name, gpus="8", **more)


def message(**more: Any) -> Message:
    """The message of the documentation."""
    fields = {
        "schema": "fairgate.dev/notify/v1",
        "id": "58b58ab5a8a4ea3f",
        "cluster": "gpu-east",
        "sender": "fairgate-6d5f7c9b8d-x2x7v_3f9a1c",
        "created_at": "2026-11-26T02:10:05Z",
        "subject": MessageSubject(NotifyKind.EVICTIONS, "vision"),
        "phase": Phase.HAPPENED,
        "severity": Severity.INFO,
        "summary": "team vision: 1 pod evicted",
        "since": "2026-11-26T02:10:00Z",
        "until": "2026-11-26T02:20:05Z",
        "count": 1,
        "items": [evicted()],
    }
    return Message(**{**fields, **more})


def policy(*targets: NotifyTarget, **more: Any) -> Policy:
    """A policy with these targets."""
    return Policy(notify=NotifyRules(targets, **more))
