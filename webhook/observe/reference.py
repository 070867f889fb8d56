"""The reference page of the metrics, made from the registries of a server and an evictor that have seen one of each.

`python -m webhook.observe.reference DIR` writes it; a test compares it with what is kept in docs/.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from webhook.core.model.amount import ONE_GPU
from webhook.core.model.names import GpuModel, NodeName, ResourceName, TeamName
from webhook.core.model.node import Node
from webhook.core.model.policy import BUILT_IN_RESOURCES, Policy, Share, Team
from webhook.core.model.reason import Code
from webhook.core.model.tier import Tier
from webhook.core.world.occupancy import UsageKey
from webhook.core.world.world import World
from webhook.observe.decisions import Phase
from webhook.observe.gpu_time import NodeGpus
from webhook.observe.ledger_metrics import Standing
from webhook.observe.metrics import Authorities, Metrics
from webhook.observe.process import Component, LeaderStatus, ProcessMetrics
from webhook.observe.reclaim import ReclaimMetrics

_HEAD: Final = """# Metrics

What `/metrics` shows, in Prometheus' text format or in OpenMetrics: the server's on its HTTPS port, the evictor's on
that of `--listen`. `charts/fairgate/files` has alerts for Prometheus and a dashboard for Grafana; the
[runbooks](runbooks.md) say what to do about each alert. This page is made from the code: `make docs` renews it.

- Each replica shows the whole ledger and the whole cluster as it sees them. Add up what replicas did
  (`fairgate_decisions_total`); of what there is take the largest word: `max by (team) (fairgate_team_gpus_used)`.
- `fairgate_gpu_seconds_total` and `fairgate_node_gpus_*` are shown by the leader alone. GPU-hours of a month, right
  whoever led when: `sum by (team, tier) (increase(fairgate_gpu_seconds_total[30d])) / 3600`. Time counts from one look
  at the pods to the next, every 10 s. What a change of leader loses is at most half a minute, and one interval between
  two scrapes.
- Labels are words of ours, teams, GPU models, resources and, for `fairgate_node_gpus_*`, nodes; pods, users and
  namespaces never are. A team has some 10 series for each replica, and one for each kind of decision that it met.
- With `--world` there is no cluster, and so no metrics of watches, of the ledger's writes and of the leader. Those of
  CAs are there with `--certs-secret`.
- In the text format most counters also have a `_created` series: when they began to count.

| metric | type | labels | of | meaning |
|---|---|---|---|---|
"""
_ONE_OF_EACH: Final = TeamName("vision")
_MODEL: Final = GpuModel("H100")
_NODE: Final = NodeName("gpu-0")
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


class _Kind(NamedTuple):
    name: str


class _Watch:
    kind = _Kind("pods")
    events = relists = rejected = 0
    last_contact: float | None = 0.0


class _Shown(NamedTuple):
    """A metric as a row of the table."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


def page() -> str:
    """Make the page."""
    shown: dict[_Shown, list[Component]] = {}
    for component, metrics in ((Component.SERVER, server()), (Component.EVICTOR, evictor())):
        for each in _shown(metrics.registry):
            shown.setdefault(each, []).append(component)
    return _HEAD + "".join(f"{_row(each, components)}\n" for each, components in shown.items())


def _row(each: _Shown, components: list[Component]) -> str:
    labels = ", ".join(f"`{label}`" for label in each.labels) or "none"
    return f"| `{each.name}` | {each.type} | {labels} | {', '.join(components)} | {each.meaning} |"


def _shown(registry: CollectorRegistry) -> Iterator[_Shown]:
    for metric in registry.collect():
        kind = "gauge" if metric.type == "info" else metric.type
        yield _Shown(metric.name + _SUFFIXES.get(metric.type, ""), kind, _labels(metric), metric.documentation)


def _labels(metric: Metric) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for sample in metric.samples for name in sample.labels if name != "le"))


def server() -> Metrics:
    """Make the metrics of a server that has seen one of each thing."""
    metrics = Metrics()
    metrics.decision(Phase.MUTATE, outcome="admit", code=Code.WITHIN_SHARE, team=_ONE_OF_EACH, seconds=0.0)
    metrics.would("shadow", outcome="deny", code=Code.TEAM_LIMIT_EXCEEDED, team=_ONE_OF_EACH)
    metrics.certificate_change("created")
    metrics.watch_world(_world())
    metrics.watch_readiness(lambda: {"policy": True})
    metrics.watch_tier_changes({(_ONE_OF_EACH, Tier.GUARANTEED): 1})
    metrics.watch_registration(lambda: True)
    metrics.accounting.add({UsageKey(_ONE_OF_EACH, _MODEL, Tier.GUARANTEED): 1}, seconds=0)
    metrics.accounting.set_nodes((NodeGpus(_NODE, _MODEL, 1, 1),))
    metrics.watch_certificate(lambda: 0.0)
    metrics.watch_authorities(lambda: Authorities(0.0, 1, is_published=True))
    metrics.watch_ledger(lambda: [Standing(_ONE_OF_EACH, 0, 0)], teams=lambda: [_ONE_OF_EACH])
    _share(metrics)
    return metrics


def evictor() -> ReclaimMetrics:
    """Make the metrics of an evictor that has seen one of each thing."""
    metrics = ReclaimMetrics()
    metrics.planned(_ONE_OF_EACH)
    metrics.victim(_ONE_OF_EACH, gpu_unit_seconds=0)
    metrics.watch(held_nodes=lambda: 0, largest_room=lambda: 0)
    metrics.watch_policy(lambda: "")
    _share(metrics)
    return metrics


def _share(metrics: ProcessMetrics) -> None:
    metrics.loop_held("mutate", 0.05)
    metrics.watch_feed([_Watch()], clock=lambda: 0.0)
    metrics.watch_leader(lambda: LeaderStatus("fairgate", is_leading=True, terms=1, events={}))


def _world() -> World:
    team = Team(_ONE_OF_EACH, gpus=Share(ONE_GPU))
    world = World(Policy(teams=(team,), resources=BUILT_IN_RESOURCES))
    world.set_node(Node(_NODE, {ResourceName("nvidia.com/gpu"): 1}, model=_MODEL))
    return world


if __name__ == "__main__":
    (Path(sys.argv[1]) / "metrics.md").write_text(page())
