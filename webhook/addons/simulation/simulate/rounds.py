"""Runs the rounds of a simulation: one policy, one seed, one world after the other."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.simulate.command import NodeKind, Options
from webhook.addons.simulation.simulate.inputs import NamedPolicy, Worlds
from webhook.addons.simulation.summary import Recorder, Summary, summary_of
from webhook.addons.simulation.task import Task
from webhook.addons.simulation.traces.formats import Row
from webhook.addons.simulation.traces.load import ORIGIN, Load, Reading, drawn, tasks_of
from webhook.core.model.amounts import TeamName, gpu_number
from webhook.core.world.world import World

MAX_BOUGHT = 4096
"""Nodes that are tried at most."""

_DAY = 86_400

Advance = Callable[[float], None]
"""Called with the part of a round that was done."""


class PolicyResult(NamedTuple):
    """The rounds of one policy."""

    name: str
    hash: str
    rounds: list[Summary]


class Purchase(NamedTuple):
    """How many nodes make a wait short enough; None where none of those tried do. `tried` has the wait by nodes."""

    kind: NodeKind
    nodes: int | None
    tried: dict[int, float | None]


class Rounds:
    """All runs of one command. Rows without a team go to the same ones under every policy, by `shares`."""

    def __init__(
        self, options: Options, worlds: Worlds, rows: list[Row], *, shares: Mapping[TeamName, int], advance: Advance
    ) -> None:
        self._options = options
        self._worlds = worlds
        self._rows = rows
        self._advance = advance
        self._gpus: float | None = None
        self._shares = shares

    def run(self, named: NamedPolicy, *, bought: int = 0) -> list[Summary]:
        """Return the rounds of a policy. Raises TraceError, WorldError."""
        return [self._round(named, self._options.seed + number, bought) for number in range(self._options.rounds)]

    def tasks(self, world: World, seed: int) -> list[Task]:
        """Return the tasks of a round; a load stays the same when nodes are added. Raises TraceError."""
        options = self._options
        rows, name = self._rows, str(options.trace or "--load")
        if options.load is not None:
            if self._gpus is None:
                weights = world.policy.resources
                self._gpus = float(gpu_number(sum(node.gpus(weights) for node in world.fleet.nodes())))
            load = Load(
                part=options.load,
                gpus=self._gpus,
                seconds=round(options.days * _DAY),
                run_seconds=options.run_seconds,
                mix=options.mix,
                rows=tuple(self._rows),
            )
            rows = drawn(load, seed=seed)
        kept = [*(pod.created for pod in world.pods()), *(pod.created for pod in world.waiting.all())]
        reading = Reading(
            name,
            origin=max([ORIGIN, *kept]),
            seed=seed,
            teams=options.teams,
            is_dealt=options.is_dealt,
            weights=self._shares,
        )
        return tasks_of(rows, world, reading)

    def purchase(self, named: NamedPolicy, kind: NodeKind) -> Purchase:
        """Return how many nodes are enough: doubled until they are, then the smallest number by halving."""
        tried: dict[int, float | None] = {}

        def is_enough(count: int) -> bool:
            tried[count] = wait = self._wait(named, count)
            return wait is not None and wait <= self._options.within

        if is_enough(0):
            return Purchase(kind, 0, tried)
        low, high = 0, 1
        while not is_enough(high):
            low, high = high, high * 2
            if high > MAX_BOUGHT:
                return Purchase(kind, None, tried)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        return Purchase(kind, high, tried)

    def _wait(self, named: NamedPolicy, count: int) -> float | None:
        """Return the longest of the rounds' percentiles; None where one of them is never reached."""
        team, found = self._options.of_team, list[float]()
        for summary in self.run(named, bought=count):
            groups = [summary.total] if team is None else [each for each in summary.teams if each.group == team]
            wait = groups[0].percentile(int(self._options.percentile)) if groups else 0.0
            if wait is None:
                return None
            found.append(wait)
        return max(found)

    def _round(self, named: NamedPolicy, seed: int, bought: int) -> Summary:
        if self._gpus is None and self._options.load is not None and bought:
            self.tasks(self._worlds.make(named.policy), seed)
        world = self._worlds.make(named.policy, bought=self._options.buy, count=bought)
        tasks = self.tasks(world, seed)
        simulation = Simulation(world, tasks, settings=self._options.settings)
        recorder = Recorder(simulation)
        done = 0

        def on_time(running: Simulation) -> None:
            nonlocal done
            recorder.note(running)
            if (come := running.come) > done:
                self._advance((come - done) / len(tasks))
                done = come

        simulation.on_time = on_time
        simulation.run()
        return summary_of(simulation, recorder)
