"""Watches pods as etcd orders them and keeps, after every single event, how many GPUs each namespace holds."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

import aiohttp

from tests.chaos.client import session
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU

ENDED = {"Succeeded", "Failed"}


class Observer:
    """The truth about a limit: `breaches` lists every moment at which a namespace held more than its limit."""

    def __init__(self, cluster: ControlPlane, limits: dict[str, int]) -> None:
        self.limits = limits
        self.breaches: list[str] = []
        self.peaks: dict[str, int] = defaultdict(int)
        self.events = 0
        self._cluster = cluster
        self._held: dict[str, tuple[str, int]] = {}
        self._sums: dict[str, int] = defaultdict(int)

    def held(self) -> dict[str, int]:
        """How many GPUs the pods of each namespace hold now."""
        return {namespace: self._sums[namespace] for namespace in self.limits}

    async def run(self) -> None:
        """Watch until cancelled, through restarts of the API server."""
        async with session(self._cluster) as api:
            version = ""
            while True:
                try:
                    version = version or await self._list(api)
                    version = await self._watch(api, version)
                except (aiohttp.ClientError, TimeoutError, ValueError):
                    await asyncio.sleep(0.2)

    async def _list(self, api: aiohttp.ClientSession) -> str:
        async with api.get("/api/v1/pods", raise_for_status=True) as answer:
            listed = await answer.json()
        found = {pod["metadata"]["uid"] for pod in listed["items"]}
        for uid in set(self._held) - found:
            self._set(uid, "", 0)
        for pod in listed["items"]:
            self._take("LIST", pod, look=False)
        self._look("a list")
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, api: aiohttp.ClientSession, version: str) -> str:
        params = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with api.get("/api/v1/pods", params=params, raise_for_status=True) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.events += 1
                    self._take(event["type"], event["object"], look=True)
        return version

    def _take(self, kind: str, pod: dict[str, Any], *, look: bool) -> None:
        meta, status = pod["metadata"], pod.get("status", {})
        gpus = 0 if kind == "DELETED" or status.get("phase") in ENDED else _gpus(pod)
        self._set(meta["uid"], meta["namespace"], gpus)
        if look:
            self._look(f"{kind} of {meta['namespace']}/{meta['name']}")

    def _set(self, uid: str, namespace: str, gpus: int) -> None:
        before, held = self._held.pop(uid, ("", 0))
        self._sums[before] -= held
        if gpus:
            self._held[uid] = (namespace, gpus)
            self._sums[namespace] += gpus

    def _look(self, at: str) -> None:
        for namespace, limit in self.limits.items():
            now = self._sums[namespace]
            self.peaks[namespace] = max(self.peaks[namespace], now)
            if now > limit:
                self.breaches.append(f"{namespace} holds {now} of {limit} after {at}")


def _gpus(pod: dict[str, Any]) -> int:
    return sum(int(c["resources"].get("limits", {}).get(GPU, 0)) for c in pod["spec"]["containers"])
