"""Watches pods in etcd's order, and after every event updates how many GPUs each namespace holds."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import aiohttp

from tests.chaos.client import session
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU

ENDED = {"Succeeded", "Failed"}
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
PODS = "/api/v1/pods"
GHOST_SLACK_SECONDS = 1.0

Listener = Callable[[str, dict[str, Any]], None]


class Observer:
    """The truth about a limit: `breaches` lists every moment at which a namespace held more than its limit.

    `limits` are of namespaces, of namespaces on nodes (`NAMESPACE on NODE`), and of departments: `above` has the
    departments above each namespace. A pod that ignores SIGTERM and is
    deleted by force holds its GPUs on its node until the grace period of its spec is over, as kubelet would have it.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        limits: dict[str, int],
        *,
        above: Mapping[str, Sequence[str]] | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.limits = limits
        self._above = above or {}
        self.breaches: list[str] = []
        self.peaks: dict[str, int] = defaultdict(int)
        self.events = 0
        self._cluster = cluster
        self._listener = listener
        self._held: dict[str, tuple[tuple[str, ...], int]] = {}
        self._ghosts: dict[str, float] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._claims: dict[tuple[str, str], int] = {}
        self._claimants: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._sums: dict[str, int] = defaultdict(int)

    def held(self) -> dict[str, int]:
        """How many GPUs the pods of each namespace hold now."""
        self._bury()
        return {place: self._sums[place] for place in self.limits}

    async def run(self) -> None:
        """Watch until cancelled, through restarts of the API server."""
        async with session(self._cluster) as api, asyncio.TaskGroup() as group:
            group.create_task(self._follow(api, PODS, self._take))
            group.create_task(self._follow(api, CLAIMS, self._take_claim))

    async def _follow(self, api: aiohttp.ClientSession, path: str, take: Callable[..., None]) -> None:
        version = ""
        while True:
            try:
                version = version or await self._list(api, path, take)
                version = await self._watch(api, path, version, take)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                await asyncio.sleep(0.2)

    async def _list(self, api: aiohttp.ClientSession, path: str, take: Callable[..., None]) -> str:
        async with api.get(path, raise_for_status=True) as answer:
            listed = await answer.json()
        known = {uid for uid, made in self._last.items() if made["path"] == path}
        for uid in known - {made["metadata"]["uid"] for made in listed["items"]}:
            take("DELETED", self._last[uid]["object"], look=False)
        for made in listed["items"]:
            self._remember(path, "LIST", made)
            take("LIST", made, look=False)
        self._look("a list")
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, api: aiohttp.ClientSession, path: str, version: str, take: Callable[..., None]) -> str:
        params = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with api.get(path, params=params, raise_for_status=True) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.events += 1
                    take(event["type"], event["object"], look=True)
                    self._remember(path, event["type"], event["object"])
        return version

    def _remember(self, path: str, kind: str, made: dict[str, Any]) -> None:
        uid = made["metadata"]["uid"]
        if kind == "DELETED":
            self._last.pop(uid, None)
        else:
            self._last[uid] = {"path": path, "object": made}

    def _take(self, kind: str, pod: dict[str, Any], *, look: bool) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        until = self._ghost_until(kind, pod)
        is_over = kind == "DELETED" or pod.get("status", {}).get("phase") in ENDED
        places = (*self._places(meta["namespace"]), f"{meta['namespace']} on {node}")
        for claim in _claims_of(pod):
            (self._claimants[claim].discard if is_over else self._claimants[claim].add)(meta["uid"])
            self._count_claim(claim)
        if until is None:
            self._set(meta["uid"], places, 0 if is_over or is_queued(pod) else gpus_of(pod))
        else:
            self._ghosts[meta["uid"]] = until
        if self._listener is not None:
            self._listener(kind, pod)
        if look:
            self._look(f"{kind} of {meta['namespace']}/{meta['name']}")

    def _take_claim(self, kind: str, claim: dict[str, Any], *, look: bool) -> None:
        """Count the devices of a claim; no pod names one that serves extended resources of its containers."""
        meta = claim["metadata"]
        allocated = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or ()
        key = (meta["namespace"], meta["name"])
        self._claims[key] = len(allocated) if kind != "DELETED" else 0
        self._count_claim(key)
        if look:
            self._look(f"{kind} of claim {meta['namespace']}/{meta['name']}")

    def _count_claim(self, key: tuple[str, str]) -> None:
        """Devices are held while a pod has them: a claim is allocated for some moments after its last pod."""
        self._set("/".join(key), self._places(key[0]), self._claims.get(key, 0) if self._claimants[key] else 0)

    def _places(self, namespace: str) -> tuple[str, ...]:
        return (namespace, *self._above.get(namespace, ()))

    def _ghost_until(self, kind: str, pod: dict[str, Any]) -> float | None:
        """Return until when a deleted pod still holds its GPUs; None if it does not."""
        meta = pod["metadata"]
        before = self._last.get(meta["uid"], {}).get("object")
        ignores = (meta.get("annotations") or {}).get("fairgate.test/ignores-sigterm") == "true"
        if kind != "DELETED" or before is None or not ignores or before["status"].get("phase") != "Running":
            return None
        if ends := before["metadata"].get("deletionTimestamp"):
            seconds = datetime.fromisoformat(ends).timestamp() - time.time()
        else:
            seconds = pod["spec"]["terminationGracePeriodSeconds"]
        return time.monotonic() + seconds - GHOST_SLACK_SECONDS

    def _bury(self) -> None:
        now = time.monotonic()
        for uid in [uid for uid, until in self._ghosts.items() if until <= now]:
            del self._ghosts[uid]
            self._set(uid, (), 0)

    def _set(self, uid: str, places: tuple[str, ...], gpus: int) -> None:
        before, held = self._held.pop(uid, ((), 0))
        for place in before:
            self._sums[place] -= held
        if gpus:
            self._held[uid] = (places, gpus)
            for place in places:
                self._sums[place] += gpus

    def _look(self, at: str) -> None:
        self._bury()
        for place, limit in self.limits.items():
            now = self._sums[place]
            self.peaks[place] = max(self.peaks[place], now)
            if now > limit:
                self.breaches.append(f"{place} holds {now} of {limit} after {at}, {len(self._ghosts)} by force deleted")


def _claims_of(pod: dict[str, Any]) -> list[tuple[str, str]]:
    claims = pod["spec"].get("resourceClaims") or ()
    named = [each["resourceClaimName"] for each in claims if "resourceClaimName" in each]
    made = (pod.get("status", {}).get("resourceClaimStatuses")) or ()
    named += [each["resourceClaimName"] for each in made if "resourceClaimName" in each]
    return [(pod["metadata"]["namespace"], name) for name in named]


def is_queued(pod: dict[str, Any]) -> bool:
    """Whether a pod waits in line: it holds nothing."""
    return any(gate["name"] == "fairgate.dev/queue" for gate in pod["spec"].get("schedulingGates") or ())


def gpus_of(pod: dict[str, Any]) -> int:
    """The whole GPUs that a device plugin hands to a pod: containers and sidecars together, or an init container."""
    spec = pod["spec"]
    largest = sidecars = 0
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars += _asked(container)
        else:
            largest = max(largest, sidecars + _asked(container))
    return max(largest, sidecars + sum(map(_asked, spec["containers"])))


def _asked(container: dict[str, Any]) -> int:
    return int(container["resources"].get("limits", {}).get(GPU, 0))
