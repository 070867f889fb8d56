"""Generates the reference page of the metrics from the registries of a server and an evictor with one sample each.

`python -m tests.docs.metrics_page DIR` writes it; a test compares it with docs/reference/metrics.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from webhook.addons.history.gpu_time import EvictedGpus, GpuHolder, GpuTimeMetrics, NodeGpus, watch_history
from webhook.addons.idle.metrics import IdleMetrics
from webhook.addons.messages.notifier import watch_notify
from webhook.addons.moves.move_reporter import MoveMetrics
from webhook.core.explain.node_rows import ClusterUse
from webhook.core.line.entries import Way
from webhook.core.model.amounts import (
    ONE_GPU,
    DepartmentName,
    GpuModel,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
)
from webhook.core.model.constraints import Tier
from webhook.core.model.node import Maintenance, Node
from webhook.core.model.policy import BUILT_IN_RESOURCES, Department, Policy, Share, Team
from webhook.core.model.reasons import Code
from webhook.core.placement.rejecting_nodes import STRIKES, Rejection
from webhook.core.world.world import World
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import Phase
from webhook.observe.metrics import CaStatus, Metrics
from webhook.observe.processes import Component, LeaderStatus, LedgerState, ProcessMetrics

_HEAD: Final = """# Metrics

The metrics of `/metrics`, in Prometheus' text format or in OpenMetrics: the server's on its HTTPS port, the evictor's
on that of `--listen`. `charts/fairgate/files` has alerts for Prometheus and a dashboard for Grafana; the
[runbooks](../tasks/runbooks.md) say what to do about each alert. This page is generated from the code by `make docs`.

- Each replica exports the whole ledger and the whole cluster as it sees them. Sum counters of a replica's own actions
  (`fairgate_decisions_total`). Of gauges of the cluster take the maximum: `max by (team) (fairgate_team_gpus_used)`.
- Sum metrics "by the leader only" over replicas, too.
  [Usage](../tasks/usage.md#from-prometheus) has queries of GPU-hours.
  A change of leader loses at most half a minute and one scrape interval.
- Label values are words, teams, GPU models, resources and nodes; never pods, users or namespaces. A team has some 25
  series on each replica, and one for each kind of decision.
- With `--world` there are no metrics of watches, ledger writes and leader. Those of CAs require `--certs-secret`.
- Names with `_total` are counters, histograms say so, all others are gauges.
- Each `fairgate_team_gpus_…{team}` has a twin `fairgate_department_gpus_…{department}` of all teams below a department.
- Not listed: `process_*` of the Prometheus client, and `_created` series of counters.
"""
_TABLE: Final = "| metric | meaning |\n|---|---|\n"
_SECTIONS: Final = {
    "Server": [Component.SERVER],
    "Evictor": [Component.EVICTOR],
    "Both": [Component.SERVER, Component.EVICTOR],
}
_TEAM: Final = TeamName("vision")
_MODEL: Final = GpuModel("H100")
_NODE: Final = NodeName("gpu-0")
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


class _Kind(NamedTuple):
    name: str


class _Watch:
    kind = _Kind("pods")
    events = relists = rejected = 0
    last_contact: float | None = 0.0


class _Notifier:
    def counts(self) -> dict[tuple[str, str], int]:
        return {("on-call", "sent"): 1}

    def states(self) -> dict[str, tuple[int, int]]:
        return {"on-call": (0, 0)}


class MetricRow(NamedTuple):
    """A metric as a row of the table."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


def page() -> str:
    """Return the page."""
    rows = metrics()
    names = {row.name for row in rows}
    described = {row: of for row, of in rows.items() if _is_described(row, names)}
    return _HEAD + "".join(
        f"\n## {title}\n{_TABLE}{''.join(_line(row) for row, of in described.items() if of == components)}"
        for title, components in _SECTIONS.items()
    )


def metrics() -> dict[MetricRow, list[Component]]:
    """Return every metric, each with the processes that have it."""
    rows: dict[MetricRow, list[Component]] = {}
    for component, found in ((Component.SERVER, server()), (Component.EVICTOR, evictor())):
        for each in _rows(found.registry):
            rows.setdefault(each, []).append(component)
    return rows


def _is_described(row: MetricRow, names: set[str]) -> bool:
    """Whether a metric has a row of its own: one of Fairgate's, and not the twin of a team's."""
    is_twin = "department" in row.name and row.name.replace("department", "team") in names
    return row.name.startswith("fairgate_") and not is_twin


def _line(row: MetricRow) -> str:
    labels = f"{{{','.join(row.labels)}}}" if row.labels else ""
    kind = " A histogram." if row.type == "histogram" else ""
    return f"| `{row.name}{labels}` | {row.meaning}{kind} |\n"


def _rows(registry: CollectorRegistry) -> Iterator[MetricRow]:
    for metric in registry.collect():
        kind = "gauge" if metric.type == "info" else metric.type
        yield MetricRow(metric.name + _SUFFIXES.get(metric.type, ""), kind, _labels(metric), metric.documentation)


def _labels(metric: Metric) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for sample in metric.samples for name in sample.labels if name != "le"))


def server() -> Metrics:
    """Return the metrics of a server, with one sample each."""
    metrics = Metrics()
    metrics.decision(Phase.MUTATE, outcome="admit", code=Code.WITHIN_SHARE, team=_TEAM, seconds=0.0)
    metrics.shadow_decision("shadow", outcome="deny", code=Code.TEAM_LIMIT_EXCEEDED, team=_TEAM)
    metrics.certificate_change("created")
    metrics.watch_world(_world())
    metrics.watch_readiness(lambda: {"policy": True})
    metrics.watch_tier_changes({(_TEAM, Tier.GUARANTEED): 1})
    metrics.watch_leader_tasks({"queue": 0})
    queue = metrics.watch_queue(World(Policy(teams=(Team(_TEAM),))))
    queue.watch_releases({(_TEAM, Way.IN_TURN): 1})
    queue.watch_timeouts({_TEAM: 1})
    queue.watch_stalled(lambda: 0)
    queue.waited(_TEAM, 0.0)
    metrics.watch_registration(lambda: True, lambda: 0)
    watch_history(metrics, lambda: None, lambda: 0)
    gpu_time = GpuTimeMetrics(metrics.registry)
    metrics.registry.register(gpu_time)
    gpu_time.watch(
        lambda: {GpuHolder(_TEAM, _MODEL, "guaranteed"): 0.0, EvictedGpus(_TEAM, "lost"): 0.0},
        nodes=lambda: [NodeGpus(_NODE, _MODEL, 1.0, 1.0)],
        use=ClusterUse,
    )
    gpu_time.begin()
    metrics.watch_certificate(lambda: 0.0)
    metrics.watch_cas(lambda: CaStatus(0.0, 1, is_published=True))
    metrics.watch_ledger(lambda: [LedgerState(_TEAM, 0, 0)], teams=lambda: [_TEAM])
    _share(metrics)
    return metrics


def evictor() -> ReclaimMetrics:
    """Return the metrics of an evictor, with one sample each."""
    metrics = ReclaimMetrics()
    metrics.planned(_TEAM)
    metrics.victim(_TEAM, gpu_unit_seconds=0)
    idle = IdleMetrics(metrics.registry)
    MoveMetrics(metrics.registry).moved(_TEAM, gpu_unit_seconds=0)
    metrics.watch(held_nodes=lambda: 0, largest_room=lambda: 0)
    metrics.watch_policy(lambda: "")
    idle.looked((), seconds=1, teams=[_TEAM])
    idle.evicted(_TEAM)
    _share(metrics)
    return metrics


def _share(metrics: ProcessMetrics) -> None:
    metrics.loop_blocked("mutate", 0.05)
    metrics.watch_feed([_Watch()], clock=lambda: 0.0)
    watch_notify(metrics, _Notifier())
    metrics.watch_leader(lambda: LeaderStatus("fairgate", is_leading=True, terms=1, events={}))


def _world() -> World:
    team, department = Team(_TEAM, gpus=Share(ONE_GPU)), Department(DepartmentName(""))
    world = World(Policy(teams=(team,), departments=(department,), resources=BUILT_IN_RESOURCES))
    gpus = {ResourceName("nvidia.com/gpu"): 1}
    world.set_node(Node(_NODE, gpus, model=_MODEL, maintenance=Maintenance.DRIVER_UPGRADE))
    world.rejecting_nodes.tick(1)
    for number in range(STRIKES):
        world.rejecting_nodes.note(Rejection(_NODE, Namespace(""), Uid(f"{number}"), 1, "UnexpectedAdmissionError"))
    return world


if __name__ == "__main__":
    (Path(sys.argv[1]) / "metrics.md").write_text(page())
