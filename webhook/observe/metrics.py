"""Metrics of a server.

The cluster's GPUs as rows of metrics: by team, by model, and how usable the free ones are.
"""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Histogram

from webhook.core.explain.pod_rows import bypassed_pods, unusual_pods
from webhook.core.explain.team_rows import UsageRow, department_rows, team_rows, workloads_below
from webhook.core.line.entries import Way
from webhook.core.model.amounts import ONE_GPU, GpuModel, TeamName, Units, Unlimited
from webhook.core.model.constraints import Tier
from webhook.core.model.node import NO_MODEL
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.core.world.charged_pods import UNUSUAL as STAGES
from webhook.core.world.world import World
from webhook.observe.logs import CODES, OTHER_CODE, Decisions, Phase
from webhook.observe.processes import Component, LedgerMetrics, LedgerState, ProcessMetrics, Row

CHARGED: Final = {
    "fairgate_gpus_charged": "GPUs on the ledger by tier. Pods that bypassed the webhook are under `guaranteed`; team "
    "`unassigned` are namespaces without a team."
}
TEAMS: Final = {
    "fairgate_team_gpus_guaranteed": "GPUs that the team always gets back, by policy.",
    "fairgate_team_gpus_limit": "GPUs that the team may hold at most, by policy; +Inf if it is unlimited.",
    "fairgate_team_gpus_used": "GPUs charged to the team, those that are reserved included.",
    "fairgate_team_gpus_reserved": "Those of the used GPUs whose pods are not in the cluster yet, or still queued.",
    "fairgate_team_gpus_lingering": "Those of the reserved GPUs that pods deleted by force may still use.",
    "fairgate_team_gpus_preemptible": "Those of the used GPUs whose pods may be evicted.",
    "fairgate_team_gpus_beyond_share": "Those of the used GPUs that exceed the team's guaranteed share.",
    "fairgate_team_gpus_waiting": "GPUs of the team's pods that are not on a node yet.",
}
DEPARTMENTS: Final = {
    "fairgate_department_gpus_guaranteed": "GPUs that the department always gets back, by policy.",
    "fairgate_department_gpus_limit": "GPUs that its teams may hold together at most; +Inf if it is unlimited.",
    "fairgate_department_gpus_used": "GPUs charged to its teams, those that are reserved included.",
    "fairgate_department_gpus_reserved": "Those of the used GPUs whose pods are not in the cluster yet, or still "
    "queued.",
    "fairgate_department_gpus_lingering": "Those of the reserved GPUs that pods deleted by force may still use.",
    "fairgate_department_gpus_preemptible": "Those of the used GPUs whose pods may be evicted.",
    "fairgate_department_gpus_beyond_share": "Those of the used GPUs that exceed the department's guaranteed share.",
    "fairgate_department_gpus_waiting": "GPUs of its teams' pods that are not on a node yet.",
}
NODES: Final = {
    "fairgate_gpus_capacity": "GPUs of all nodes. `model`: from the nodes' labels; `resource`: its name in the policy.",
    "fairgate_gpus_closed": "GPUs on nodes that are cordoned, not ready or in maintenance, as far as they offer them.",
    "fairgate_gpus_free": "Free GPUs on schedulable nodes that are not reserved for waiting pods. An admitted pod "
    "reserves its GPUs on the node chosen for it.",
    "fairgate_gpus_fragmented": "Free GPUs that future pods cannot use, each pod size weighted by how often it is "
    "requested. Divided by the free GPUs it is the fragmentation rate.",
    "fairgate_gpus_largest_fit": "Free GPUs on the schedulable node that has most of them: no larger pod fits now.",
    "fairgate_nodes_whole": "Schedulable nodes whose GPUs are all free.",
}

MAINTENANCE: Final = {
    "fairgate_gpus_in_maintenance": "GPUs of nodes whose driver an operator upgrades now, or whose GPUs it "
    "repartitions, as they were before or are now. Only models with any."
}

REJECTING: Final = {
    "fairgate_node_rejecting_teams": "Teams whose last pods this node rejected: it gets none of their pods now, or one "
    "at a time. Only nodes that reject pods."
}

UNUSUAL: Final = {
    "fairgate_unusual_pods_gpus": "GPUs of pods whose charge may surprise, by `stage`: stalled (charged, and something "
    "else than room keeps them off every node), overdue (deleted, and their nodes have not ended them in time), lost "
    "(the same on lost nodes, so they count for no limit), lingering (deleted by force, and their nodes may still run "
    "them)."
}

OF_TEAMS: Final = {
    "fairgate_workloads_below_minimum": "Workloads of the team with fewer pods ready than their minimum of replicas.",
    "fairgate_undecided_pods": "GPU pods of the team that exist without a decision of Fairgate, which would have made "
    "one: `fairgate bypassed` lists them.",
}


def charged_rows(world: World) -> Iterable[Row]:
    """Yield each team's charged GPUs by tier."""
    for each in team_rows(world):
        yield Row((each.name, Tier.GUARANTEED), (_gpus(each.used - each.preemptible),))
        yield Row((each.name, Tier.PREEMPTIBLE), (_gpus(each.preemptible),))


def amounts_of_teams(world: World) -> Iterable[Row]:
    """Yield each team's share and usage."""
    for each in team_rows(world):
        yield Row((each.name,), _amounts(each))


def amounts_of_departments(world: World) -> Iterable[Row]:
    """Yield each department's share and usage."""
    for each in department_rows(world):
        yield Row((each.name,), _amounts(each))


def _amounts(of: UsageRow) -> list[float]:
    limit = float("inf") if isinstance(of.limit, Unlimited) else of.limit
    used = (of.used, of.reserved, of.lingering, of.preemptible, of.beyond_share, of.waiting)
    return [_gpus(each) for each in (of.guaranteed, limit, *used)]


def node_rows(world: World) -> Iterable[Row]:
    """Yield the nodes' GPUs by model and resource."""
    for each in gpu_inventory(world.fleet, world.policy):
        amounts = (each.capacity, each.closed, each.free, each.fragmented, each.largest)
        yield Row((each.model, each.resource), [*map(_gpus, amounts), each.whole_nodes])


def maintenance_rows(world: World) -> Iterable[Row]:
    """Yield the GPUs of nodes in maintenance by model, as the nodes were before or are now, the larger."""
    found: dict[GpuModel, Units] = defaultdict(int)
    for name in world.absent_nodes.maintained:
        now, before = world.fleet.get(name), world.absent_nodes.get(name)
        states = [each for each in (now if before else now and now.recovered, before) if each is not None]
        units = [each.gpus(world.policy.resources) for each in states]
        found[next((each.model for each in states if each.model), NO_MODEL)] += max(units, default=0)
    yield from (Row((model,), (_gpus(units),)) for model, units in found.items())


def rejecting_rows(world: World) -> Iterable[Row]:
    """Yield the nodes that reject pods."""
    for node, number in Counts(
        node for node, _ in {(each.node, each.team) for each in world.rejecting_nodes.closed()}
    ).items():
        yield Row((node,), (number,))


def unusual_rows(world: World) -> Iterable[Row]:
    """Yield the GPUs of pods at unusual stages, 0 where there are none."""
    found = {each.stage: each.gpus for each in unusual_pods(world)}
    for stage in sorted(STAGES):
        yield Row((stage,), (_gpus(found.get(stage, 0)),))


def rows_of_teams(world: World) -> Iterable[Row]:
    """Yield how many workloads of each team are below their minimum, and how many of its pods have no decision."""
    below, undecided = workloads_below(world), Counts(each.team for each in bypassed_pods(world) if each.is_missed)
    for team in dict.fromkeys([*(team.name for team in world.policy.teams), *sorted(below | undecided)]):
        yield Row((team,), (below[team], undecided[team]))


def _gpus(units: Units | float) -> float:
    return float(units / ONE_GPU)


# Metrics of the queue: how many pods wait in the queue, how long they waited, and how they were released.
#
# The depth is exported by every replica; releases and waits by the one that leads.


WAIT_BOUNDS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0)

_DEPTH: Final = {
    "fairgate_queue_depth": "Pods of the team that are queued, those that other controllers' gates hold included.",
    "fairgate_queue_charged": "Pods of the team that are charged and stay queued while reclaim frees their GPUs.",
}
_WAIT: Final = (
    "fairgate_queue_wait_seconds",
    "Time from the creation of a pod to its release from the queue, observed by the leader: sum over replicas.",
)
_RELEASES: Final = (
    "fairgate_queue_releases",
    "Pods that were released from the queue, counted by the leader: sum over replicas. `way`: inTurn, backfill.",
)
_TIMED_OUT: Final = (
    "fairgate_gangs_timed_out",
    "Gangs whose pods did not all come within queue.gangTimeout, counted by the leader: sum over replicas.",
)

_STALLED: Final = (
    "fairgate_queue_stalled_seconds",
    "For how long the first queued pod could have started and was not released, by the leader; 0 if none waits so.",
)


class QueueMetrics:
    """Exports the line of each team; `waited` is called for each release."""

    def __init__(self, process: ProcessMetrics, world: World) -> None:
        self._process = process
        self._world = world
        process.add_table(_DEPTH, self._depths, labels=["team"])
        self._waits = Histogram(*_WAIT, ["team"], buckets=WAIT_BOUNDS, registry=process.registry)

    def watch_releases(self, released: Mapping[tuple[TeamName, Way], int]) -> None:
        """Export the releases that this replica made."""

        def counts() -> Mapping[tuple[TeamName, Way], int]:
            return {(team.name, way): 0 for team in self._world.policy.teams for way in Way} | dict(released)

        self._process.add_counts(*_RELEASES, counts, labels=["team", "way"])

    def watch_timeouts(self, timed_out: Mapping[TeamName, int]) -> None:
        """Export the gangs that this replica saw not come in time."""
        self._process.add_counts(*_TIMED_OUT, lambda: timed_out, labels=["team"])

    def watch_stalled(self, seconds: Callable[[], float]) -> None:
        """Export for how long the queue has stood still."""
        self._process.add_gauge(*_STALLED, seconds)

    def waited(self, team: TeamName, seconds: float) -> None:
        """Record how long a pod waited that was released."""
        self._waits.labels(team).observe(seconds)

    def _depths(self) -> list[Row]:
        """Return a row for each team of the policy, and for others that have queued pods."""
        names = dict.fromkeys([team.name for team in self._world.policy.teams])
        for name in names:  # series of waits begin at 0: rate() does not see the first value of a series
            self._waits.labels(name)
        waiting = self._world.waiting
        return [
            Row((name,), (waiting.uncharged(name).pods, waiting.charged(name).pods))
            for name in names | dict.fromkeys(waiting.teams())
        ]


# The metrics of the server. Label values come from enums and from the admins' configuration, never from pods.


_TIER_CHANGES: Final = (
    "fairgate_tier_changes",
    "Pods that this replica gave another tier. `tier`: the new one, guaranteed for promotions, preemptible for "
    "demotions.",
)
_READY: Final = {
    "fairgate_ready": "1 where a condition of readiness holds, 0 where not. `condition`: policy, certificate, ledger, "
    "world, serving."
}


@dataclass(frozen=True, slots=True)
class CaStatus:
    """The CAs of certificates in a Secret: when the signing one expires (Unix time), and how many are trusted."""

    expires_at: float
    trusted: int
    is_published: bool


class Metrics(ProcessMetrics):
    """All metrics of one server."""

    def __init__(self) -> None:
        super().__init__(Component.SERVER)
        self._decisions = Decisions()
        self.registry.register(self._decisions)
        self._http_errors = Counter(
            "fairgate_http_errors",
            "HTTP requests that got an error response instead of a decision. A refused pod is not one.",
            ["status"],
            registry=self.registry,
        )
        self._would = Counter(
            "fairgate_would_decisions",
            "Decisions that the policy would make if it were enforced. `enforce`: shadow, warn.",
            ["enforce", "outcome", "code", "team"],
            registry=self.registry,
        )
        self._http_errors.labels("500")  # start at 0, so that the first bug is visible as an increase
        self._certificate_changes = Counter(
            "fairgate_certificate_changes",
            "Changes that this replica wrote to the certificates' Secret. `change`: created, renewed, announced, "
            "taken_over, forgotten, replaced.",
            ["change"],
            registry=self.registry,
        )

    def decision(self, phase: Phase, *, outcome: str, code: str, team: str, seconds: float) -> None:
        """Count one decision and its duration."""
        self._decisions.add(phase, outcome=outcome, code=code, team=team, seconds=seconds)

    def shadow_decision(self, enforce: str, *, outcome: str, code: str, team: str) -> None:
        """Count a decision of a policy that is not enforced."""
        self._would.labels(enforce, outcome, code if code in CODES else OTHER_CODE, team).inc()

    def http_error(self, status: int) -> None:
        """Count a request that got an HTTP error response."""
        self._http_errors.labels(str(status)).inc()

    def certificate_change(self, change: str) -> None:
        """Count a change that this process wrote to the certificates' Secret."""
        self._certificate_changes.labels(change).inc()

    def watch_readiness(self, conditions: Callable[[], Mapping[str, bool]]) -> None:
        """Export which conditions of readiness hold."""
        self.add_table(_READY, lambda: [Row((name,), (ok,)) for name, ok in conditions().items()], labels=["condition"])

    def watch_world(self, world: World) -> None:
        """Export the policy, the teams' shares and usage, and the nodes' GPUs."""
        self.watch_policy(lambda: world.policy.hash)
        self.add_table(CHARGED, lambda: charged_rows(world), labels=["team", "tier"])
        self.add_table(TEAMS, lambda: amounts_of_teams(world), labels=["team"])
        self.add_table(DEPARTMENTS, lambda: amounts_of_departments(world), labels=["department"])
        self.add_table(NODES, lambda: node_rows(world), labels=["model", "resource"])
        self.add_table(MAINTENANCE, lambda: maintenance_rows(world), labels=["model"])
        self.add_table(REJECTING, lambda: rejecting_rows(world), labels=["node"])
        self.add_table(OF_TEAMS, lambda: rows_of_teams(world), labels=["team"])
        self.add_table(UNUSUAL, lambda: unusual_rows(world), labels=["stage"])

    def watch_queue(self, world: World) -> QueueMetrics:
        """Export how many pods wait in the queue; return what counts releases."""
        return QueueMetrics(self, world)

    def watch_tier_changes(self, changes: Mapping[tuple[TeamName, Tier], int]) -> None:
        """Export the promotions and demotions that this replica made."""
        self.add_counts(*_TIER_CHANGES, lambda: changes, labels=["team", "tier"])

    def watch_leader_tasks(self, failures: Mapping[str, int]) -> None:
        """Export how often each task of the leader failed."""
        self.add_counts(
            "fairgate_leader_task_failures",
            "Unexpected errors in a task of the leader, which started again. Should stay 0. `task`: registration, "
            "usage, labels, queue, refusals, policy, starts, room, usage report.",
            lambda: failures,
            labels=["task"],
        )

    def watch_registration(self, is_in_step: Callable[[], bool], missing: Callable[[], int]) -> None:
        """Export whether the webhook configurations match the policy, and how many are missing."""
        self.add_gauge(
            "fairgate_webhooks_missing",
            "Webhook configurations that the policy requires and the cluster does not have; 0 without the lead.",
            missing,
        )
        self.add_gauge(
            "fairgate_registration_in_step",
            "0 on a leader whose webhook configurations are missing or do not match the policy, otherwise 1.",
            is_in_step,
        )

    def watch_certificate(self, expires_at: Callable[[], float]) -> None:
        """Export when the serving certificate expires, as Unix time."""
        name = "fairgate_certificate_expiration_timestamp_seconds"
        self.add_gauge(name, "When the serving certificate expires, in Unix time.", expires_at)

    def watch_cas(self, ca_status: Callable[[], CaStatus]) -> None:
        """Export the state of the CAs of certificates in a Secret."""
        columns = {
            "fairgate_ca_expiration_timestamp_seconds": "When the CA of the serving certificate expires, in Unix time.",
            "fairgate_ca_trusted": "CAs that callers should trust: 1, or 2 while one replaces another.",
            "fairgate_ca_published": "1 if the webhook configurations are known to contain these CAs.",
        }

        def row() -> Row:
            status = ca_status()
            return Row((), (status.expires_at, status.trusted, status.is_published))

        self.add_table(columns, lambda: [row()], labels=())

    def watch_ledger(
        self, states: Callable[[], Iterable[LedgerState]], *, teams: Callable[[], Iterable[TeamName]]
    ) -> LedgerMetrics:
        """Add the metrics of a ledger on the API; `states` is called on each scrape."""
        return LedgerMetrics(self, states=states, teams=teams)
