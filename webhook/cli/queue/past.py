"""How long pods ran so far, for the likely starts of those that wait: of the cluster, and of a recorded history."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.cli.world_source import Source, WorldError, WorldObjects
from webhook.core.explain.likely_start import Run
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.names import TeamName, Uid, User
from webhook.history.reader import read_run_times
from webhook.history.schema import HistoryError
from webhook.kube.pod.run_times import to_run
from webhook.server.settings import LiveCluster

RECORDED: Final = 10_000
"""Pods of a history that are learned from, the latest first."""


def runs_of(
    found: WorldObjects, source: Source, namespaces: Sequence[str], *, history: Path | None = None
) -> Iterator[Run]:
    """Yield how long pods ran: those that were read, in a live cluster some that have ended, those of a history.

    A pod of both counts once. Raises WorldError for a history that cannot be read.
    """
    pods: list[Mapping[str, Any]] = [each for each in found.objects if each.get("kind") == "Pod"]
    if isinstance(source, LiveCluster):
        from webhook.cli.live_cluster import read_ended  # noqa: PLC0415 - slow to import, and files need none of it

        pods += asyncio.run(read_ended(source.kubeconfig, namespaces))
    known = {run.uid: run for pod in pods if (run := to_run(pod)) is not None}
    recorded = () if history is None else _recorded(history)
    yield from known.values()
    yield from (run for run in recorded if run.uid not in known)


def _recorded(history: Path) -> list[Run]:
    """Return the pods that ended while they were recorded."""
    try:
        rows = read_run_times(history, most=RECORDED)
    except HistoryError as error:
        raise WorldError(str(error)) from error
    return [
        Run(
            Uid(row.uid),
            TeamName(row.team),
            int(row.bound),
            int(row.ended),
            round(row.gpus * ONE_GPU),
            User(row.user) if row.user else None,
        )
        for row in rows
    ]
