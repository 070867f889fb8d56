"""How long guaranteed pods wait while others borrow: the time in which a borrower could be evicted for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.observer import gpus_of
from tests.scenarios.serving import TIER

ENDED = {"Succeeded", "Failed"}


@dataclass(slots=True)
class GuaranteedWaits:
    """The waits of guaranteed pods in some namespaces, fed with the events of all pods, in their order.

    A pod waits from the event by which kube-scheduler reports it unschedulable to the one by which it is bound or
    deleted. On `closed` nodes no borrower blocks it.
    """

    namespaces: frozenset[str]
    closed: frozenset[str] = frozenset()
    clock: Callable[[], float] = time.monotonic
    done: list[float] = field(default_factory=list)
    _since: dict[str, tuple[float, str]] = field(default_factory=dict)
    _borrowers: dict[str, str] = field(default_factory=dict)

    def take(self, kind: str, pod: dict[str, Any]) -> None:
        """Apply an event."""
        meta, spec = pod["metadata"], pod["spec"]
        uid, name = meta["uid"], f"{meta['namespace']}/{meta['name']}"
        is_over = kind == "DELETED" or pod.get("status", {}).get("phase") in ENDED
        tier = (meta.get("labels") or {}).get(TIER)
        self._borrowers.pop(uid, None)
        node = spec.get("nodeName")
        if not is_over and tier != "guaranteed" and node is not None and node not in self.closed and gpus_of(pod):
            self._borrowers[uid] = f"{name} on {node}"
        waits = not is_over and tier == "guaranteed" and "nodeName" not in spec and _is_unschedulable(pod)
        if waits and meta["namespace"] in self.namespaces and "deletionTimestamp" not in meta:
            self._since.setdefault(uid, (self.clock(), name))
        elif uid in self._since:
            self.done.append(self.clock() - self._since.pop(uid)[0])
        if not self._borrowers:
            self._since = {uid: (self.clock(), name) for uid, (_, name) in self._since.items()}

    def longest(self) -> float:
        """The longest wait so far, of pods that still wait as well."""
        return max([*self.done, *(self.clock() - since for since, _ in self._since.values())], default=0.0)

    def state(self) -> str:
        """The waiting pods, and the borrowers that block them."""
        waiting = [f"{name} for {self.clock() - since:.1f} s" for since, name in self._since.values()]
        return f"waiting: {waiting}; borrowers: {sorted(self._borrowers.values())}"


def _is_unschedulable(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)
