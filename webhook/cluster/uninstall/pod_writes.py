"""Patches many pods, so many at a time and so many in a second; what fails is tried again, then named."""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import pod_path
from webhook.cluster.uninstall.scope import Tempo
from webhook.kube.pod.let_go import MarkedPod

_TRIES: Final = 4
_REST_SECONDS: Final = 0.5
_MAX_REST_SECONDS: Final = 10.0


async def patch_pods(
    connection: ApiConnection,
    pods: Iterable[MarkedPod],
    patch: Callable[[MarkedPod], bytes],
    *,
    content_type: str,
    tempo: Tempo,
) -> list[str]:
    """Patch each pod; return for each one that could not be patched its name and why.

    A pod that is gone, or another one by its name, is not an error.
    """
    queue = enumerate(list(pods))
    began = _now()
    failed: list[str] = []

    async def work() -> None:
        for number, pod in queue:  # shared: each pod has one worker
            await asyncio.sleep(began + (number - tempo.at_once) / tempo.pods_per_second - _now())
            problem = await _patch(connection, pod, patch(pod), content_type)
            if problem:
                failed.append(f"{pod.text}: {problem}")

    async with asyncio.TaskGroup() as group:
        for _ in range(tempo.at_once):
            group.create_task(work())
    return sorted(failed)


async def _patch(connection: ApiConnection, pod: MarkedPod, body: bytes, content_type: str) -> str:
    """Patch one pod; return why it could not be done, nothing if it was."""
    path = pod_path(pod.namespace, pod.name)
    problem = ""
    for attempt in range(_TRIES):
        rest = _REST_SECONDS * 2**attempt
        try:
            await connection.send("PATCH", path, body, action="patch pods", content_type=content_type)
        except ApiError as error:
            if error.is_missing:
                return ""
            problem = str(error)
            if error.is_forbidden or error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                break
            rest = max(rest, error.retry_after_seconds)
        except ClusterError as error:
            problem = str(error)
        else:
            return ""
        await asyncio.sleep(min(rest, _MAX_REST_SECONDS))
    return problem


def _now() -> float:
    return asyncio.get_running_loop().time()
