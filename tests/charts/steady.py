"""A steady stream of GPU pods, as a controller would make them, to see that none is lost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.scenarios.serving import TIER

AT_ONCE = 3


@dataclass(slots=True)
class Steady:
    """The outcomes; `failed` are responses that no client would retry by itself, and pods that bypassed Fairgate."""

    created: int = 0
    failed: list[str] = field(default_factory=list)


@contextmanager
def creating(cluster: ControlPlane, namespace: str) -> Iterator[Steady]:
    """Create pods of one GPU, several at once, and delete each again, until the end of the block."""
    stop, steady = threading.Event(), Steady()
    threads = [
        threading.Thread(target=_create, args=(cluster, namespace, f"steady-{number}", stop, steady))
        for number in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    try:
        yield steady
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def _create(cluster: ControlPlane, namespace: str, name: str, stop: threading.Event, steady: Steady) -> None:
    api = Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in itertools.count():  # never a name twice: KWOK deletes the last of a pod by its name
        if stop.is_set():
            break
        try:
            made = api.create(pods, pod(f"{name}-{number}", gpus=1, cpu="1", memory="4Gi"))
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:  # which kubectl and the controllers repeat silently
                steady.failed.append(str(error))
            stop.wait(0.05)
            continue
        steady.created += 1
        if TIER not in made["metadata"].get("labels", {}):
            steady.failed.append(f"{name}-{number} slipped by")
        # A pod deleted while it starts may be gone before its node reports its end: then it stays charged.
        path = f"{pods}/{name}-{number}"
        while not (stop.is_set() or api.get(path)["status"].get("phase") == "Running"):
            stop.wait(0.02)
        api.delete(path)
        while not stop.is_set() and api.exists(path):
            stop.wait(0.02)
    api.close()
