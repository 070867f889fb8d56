"""What likely starts are made of besides the world: of the cluster, and of a recorded history."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.cli.explain.beside import Evictor
from webhook.cli.world_source import Source, WorldObjects
from webhook.core.explain.likely_start import Run
from webhook.core.explain.past import Past
from webhook.core.explain.range_scores import RangeScores
from webhook.core.model.amount import ONE_GPU, exact_units
from webhook.core.model.decision import Deny
from webhook.core.model.names import Namespace, TeamName, Uid, User
from webhook.core.world.world import World
from webhook.history.reader import read_run_times
from webhook.kube.kinds.model import mapping
from webhook.kube.pod.run_times import to_run
from webhook.kube.pod.stated_run_time import stated_run_time
from webhook.server.settings import LiveCluster
from webhook.simulation.simulate import read_template

RECORDED: Final = 10_000
"""Pods of a history that are learned from, the latest first."""


def past_of(
    found: WorldObjects,
    world: World,
    source: Source,
    namespaces: Sequence[str],
    *,
    history: Path | None = None,
    evictor: Evictor | None = None,
) -> Past:
    """Return how pods ran: those that were read, in a live cluster some that have ended, those of a history.

    A pod of both counts once. An `evictor` that leads, or of which that is not known, is looked for in the cluster
    otherwise. Raises HistoryError for a history that cannot be read.
    """
    pods: list[Mapping[str, Any]] = [each for each in found.objects if each.get("kind") == "Pod"]
    scores, no_evictor = RangeScores(), ""
    if isinstance(source, LiveCluster):
        from webhook.cli.live_past import read_past  # noqa: PLC0415 - slow to import, and files need none of it

        live = asyncio.run(read_past(source.kubeconfig, namespaces, evictor))
        pods += live.ended
        scores, no_evictor = live.scores, live.no_evictor
    known = {run.uid: run for pod in pods if (run := _run(pod, world)) is not None}
    recorded = () if history is None else _recorded(history)
    runs = [*known.values(), *(run for run in recorded if run.uid not in known)]
    return Past(runs, scores=scores, no_evictor=no_evictor)


def _run(pod: Mapping[str, Any], world: World) -> Run | None:
    """Return a pod's run, with what it asks for where no decision on it says what it was charged."""
    run = to_run(pod)
    if run is None or run.gpus:
        return run
    if (charge := world.charge_of(run.uid)) is not None:
        return run._replace(gpus=exact_units(charge.gpus), user=charge.user)
    namespace = Namespace(str(mapping(pod.get("metadata")).get("namespace") or "default"))
    template = read_template(pod, namespace=namespace, world=world)
    return run if isinstance(template, Deny) else run._replace(gpus=exact_units(template.pod.demand.gpus))


def _recorded(history: Path) -> list[Run]:
    """Return the pods that ended while they were recorded."""
    rows = read_run_times(history, most=RECORDED)
    return [
        Run(
            Uid(row.uid),
            TeamName(row.team),
            int(row.bound),
            int(row.ended),
            round(row.gpus * ONE_GPU),
            User(row.user) if row.user else None,
            stated_run_time(row.annotations, row.deadline),
            int(row.created),
        )
        for row in rows
    ]
