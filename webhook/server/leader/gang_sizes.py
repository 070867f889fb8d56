"""Reads how many pods make a gang from the object that makes them, or from their PodGroup."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.core.gangs.gang_line import GangLine
from webhook.core.gangs.gang_plans import GangPlan
from webhook.core.model.text import printable, shortened
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.kinds.model import mapping
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import bounds
from webhook.kube.workloads.gang_object import GangObject, gang_object
from webhook.kube.workloads.gang_size import UnknownSizeError, gang_plan

SECONDS: Final = 1.0
"""Timeout of one read: releases wait for it. What cannot be read leaves the size unknown."""

_MAX_REASON: Final = 200
OnProblem = Callable[[WaitingPod, str], None]
_decoder: Final = msgspec.json.Decoder(dict[str, object])


class GangSizes:
    """Reads sizes of gangs. Call `read` before each pass; `reads` counts requests.

    `on_problem` is called with a pod of each gang whose object says nothing, and the reason.
    """

    def __init__(self, connection: ApiConnection, world: World, *, on_problem: OnProblem) -> None:
        self.reads = 0
        self._connection = connection
        self._world = world
        self._on_problem = on_problem

    async def read(self, gangs: GangLine, *, now: int) -> None:
        """Read the objects of gangs that wait for members, or for no others to come; each once in a while."""
        unread = gangs.unread(now=now)
        plans = await asyncio.gather(*map(self._plan, unread))
        for pod, plan in zip(unread, plans, strict=True):
            gang = pod.pod.gang
            if gang is not None and gangs.learn(gang.id, plan) and plan.problem:
                self._on_problem(pod, f"gang {printable(gang.name)}: {plan.problem}")

    async def _plan(self, waiting: WaitingPod) -> GangPlan:
        pod = waiting.pod
        found = None if pod.gang is None else gang_object(pod, pod.gang.id)
        if found is None or pod.gang is None:
            return GangPlan(problem="the object that makes its pods is not known")
        try:
            return await self._read(found, waiting)
        except UnknownSizeError as error:
            return _unknown(found, f"says no size: {printable(shortened(str(error), _MAX_REASON))}")
        except ApiError as error:
            if error.status in _REASONS:
                return _unknown(found, _REASONS[error.status])
            return _unknown(found, f"cannot be read ({error.status})", is_temporary=True)
        except (ValueError, RecursionError):
            return _unknown(found, "cannot be read")
        except ClusterError:
            return _unknown(found, "cannot be read now", is_temporary=True)

    async def _read(self, found: GangObject, waiting: WaitingPod) -> GangPlan:
        body = await self._get(found) or b"{}"
        if len(body) > bounds.LARGE_BYTES:  # tenants choose it, and the leader has other things to do
            raise UnknownSizeError(f"it has {len(body):,} bytes, and no more than {bounds.LARGE_BYTES:,} are read")
        document = _decoder.decode(body)
        if found.uid and mapping(document.get("metadata")).get("uid") != found.uid:
            return _unknown(found, "is another one than that of its pods")
        policy = self._world.policy
        kinds = kind_table(policy.workloads.kinds)
        return gang_plan(document, kinds=kinds, namespace=waiting.pod.namespace, weights=policy.resources)

    async def _get(self, found: GangObject) -> bytes | None:
        """Return an object of the first API version that has it."""
        for path in found.paths[:-1]:
            try:
                return await self._send(path)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        return await self._send(found.paths[-1])

    async def _send(self, path: str) -> bytes | None:
        self.reads += 1
        return await self._connection.send("GET", path, action=f"get {path.split('/')[-2]}", seconds=SECONDS)


_REASONS: Final[dict[int, str]] = {
    HTTPStatus.NOT_FOUND: "is not there, or its kind is not installed",
    HTTPStatus.FORBIDDEN: "may not be read by Fairgate",
}


def _unknown(found: GangObject, problem: str, *, is_temporary: bool = False) -> GangPlan:
    return GangPlan(problem=f"{found.kind} {printable(found.name)} {problem}", is_temporary=is_temporary)
