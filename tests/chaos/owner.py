"""An honest team that reclaims its guaranteed share again and again: all of it at once, then none of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.client import ask, session
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.scenarios.serving import TIER

POLL_SECONDS = 0.1


@dataclass(slots=True)
class Owner:
    """Creates pods that never borrow, waits until all of them are bound, and deletes them.

    `waits` are the seconds until the last of them was bound, each time; `refused` are the refusals received instead.
    """

    cluster: ControlPlane
    namespace: str
    gpus: int
    idle_seconds: float
    most_seconds: float
    waits: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Reclaim the share and release it, until cancelled."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        async with session(self.cluster) as api:
            while True:
                began = time.monotonic()
                for _ in range(self.gpus):
                    status, answer = await ask(api, "POST", pods, _pod())
                    if status != 201:
                        self.refused.append(f"{status} {answer.get('message')}")
                for _ in range(int(self.most_seconds / POLL_SECONDS)):
                    if not await _wait(api, pods):
                        break
                    await asyncio.sleep(POLL_SECONDS)
                self.waits.append(time.monotonic() - began)
                await ask(api, "DELETE", pods)
                await asyncio.sleep(self.idle_seconds)


async def _wait(api: Any, path: str) -> bool:
    _, answer = await ask(api, "GET", path)
    return any("nodeName" not in made["spec"] for made in answer["items"])


def _pod() -> dict[str, Any]:
    name = f"own-{secrets.token_hex(4)}"
    return pod(name, gpus=1, cpu="1", memory="1Gi", labels={TIER: "guaranteed"}, terminationGracePeriodSeconds=1)
