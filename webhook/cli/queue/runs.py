"""How long pods ran so far, for the likely starts of those that wait."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.cli.world_source import Source, WorldObjects
from webhook.core.explain.likely_start import Run
from webhook.kube.pod.run_times import to_run
from webhook.server.settings import LiveCluster


def runs_of(found: WorldObjects, source: Source, namespaces: Sequence[str]) -> Iterator[Run]:
    """Yield how long pods ran: those that were read, and in a live cluster some that have ended."""
    pods: list[Mapping[str, Any]] = [each for each in found.objects if each.get("kind") == "Pod"]
    if isinstance(source, LiveCluster):
        from webhook.cli.live_cluster import read_ended  # noqa: PLC0415 - slow to import, and files need none of it

        pods += asyncio.run(read_ended(source.kubeconfig, namespaces))
    for pod in pods:
        if (run := to_run(pod)) is not None:
            yield run
