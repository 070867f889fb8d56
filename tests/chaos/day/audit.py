"""What the API server's audit log says of pods without GPUs: how many, the slowest, and which of them met a webhook."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.control_plane.objects import GPU

WEBHOOK_LATENCY = ("apiserver.latency.k8s.io/mutating-webhook", "apiserver.latency.k8s.io/validating-webhook")
"""Annotations of a slow request that waited for a webhook."""
CALLED = "webhook.admission.k8s.io/"
"""Part of the annotations of a request for which a webhook was called, or could not be called."""


@dataclass(slots=True)
class PlainPods:
    """Creations of pods without GPUs: how many succeeded, the longest in seconds, and those that met a webhook."""

    created: int = 0
    slowest_seconds: float = 0.0
    refused: list[str] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)


def plain_pods(log: Path) -> PlainPods:
    """Read an audit log."""
    found = PlainPods()
    for event in _events(log.read_text().splitlines()):
        if event["verb"] != "create" or event["stage"] != "ResponseComplete":
            continue
        about = event.get("objectRef", {})
        if about.get("resource") != "pods" or about.get("subresource") or _asks_for_gpus(event):
            continue
        status, name = event["responseStatus"], f"{about['namespace']}/{about.get('name')}"
        seconds = (_time(event["stageTimestamp"]) - _time(event["requestReceivedTimestamp"])).total_seconds()
        found.slowest_seconds = max(found.slowest_seconds, seconds)
        found.created += status["code"] == 201
        if status["code"] >= 400 and any(word in status.get("message", "") for word in ("webhook", "fairgate")):
            found.refused.append(f"{name}: {status['message']}")
        notes = event.get("annotations", {})
        if met := [key for key in notes if key in WEBHOOK_LATENCY or CALLED in key]:
            found.delayed.append(f"{name} after {seconds:.2f} s: {met}")
    return found


def _events(lines: Iterable[str]) -> Iterable[dict]:
    """Decode the lines; one that is cut short by a kill of the API server is left out."""
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _asks_for_gpus(event: dict) -> bool:
    containers = event.get("requestObject", {}).get("spec", {}).get("containers", ())
    return any(GPU in each.get("resources", {}).get("limits", {}) for each in containers)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
