"""Time of a scrape of the server, by number of nodes: all metrics of a busy cluster, and the longest chunk of them.

Between two chunks the event loop answers reviews, so the longest chunk is the delay that a scrape may cause.

The fleets are those of placement.py; decisions of every common kind were counted for each team. The time is processor
time of the process: other load on the machine does not count.
"""

import argparse
import platform
from datetime import UTC, datetime
from time import process_time_ns

from decide import Spread
from placement import NODE_KINDS, TASKS, mixed, one_kind

from webhook.core.model.amounts import ONE_GPU, TeamName
from webhook.core.model.policy import Policy, Share, Team
from webhook.core.model.reasons import Code
from webhook.core.placement.fleet import Fleet
from webhook.core.world.world import World
from webhook.observe.logs import Phase
from webhook.observe.metrics import Metrics

KINDS = [
    (phase, outcome, code)
    for phase in (Phase.MUTATE, Phase.VALIDATE)
    for outcome, code in (
        ("admit", Code.WITHIN_SHARE),
        ("admit", Code.BORROWS),
        ("deny", Code.TEAM_LIMIT_EXCEEDED),
        ("retry", Code.RACE_LOST),
    )
]


def busy(fleet: Fleet, teams: int) -> Metrics:
    named = tuple(Team(TeamName(f"team-{number}"), gpus=Share(8 * ONE_GPU)) for number in range(teams))
    world = World(Policy(teams=named, resources=dict.fromkeys(fleet.gpus.tracked, ONE_GPU)))
    world.fleet = fleet
    metrics = Metrics()
    metrics.watch_world(world)
    for team in named:
        for phase, outcome, code in KINDS:
            metrics.decision(phase, outcome=outcome, code=code, team=team.name, seconds=0.001)
    return metrics


def scrape(metrics: Metrics) -> list[int]:
    """The time of each chunk."""
    times, pieces = [], metrics.expose().pieces
    while True:
        began = process_time_ns()
        if next(pieces, None) is None:
            return times
        times.append(process_time_ns() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000], help="numbers of nodes")
    parser.add_argument("--teams", type=int, default=50)
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {options.teams} teams, milliseconds\n")
    print("| fleet | nodes | KB | p50 | p99 | longest p50 | longest p99 |\n| --- | --- | --- | --- | --- | --- | --- |")
    for size in options.sizes:
        for name, traffic in (
            ("one kind", one_kind(size, seed=1)),
            ("mixed", mixed(size, NODE_KINDS, TASKS, seed=1)),
        ):
            fleet = traffic.fleet
            metrics = busy(fleet, options.teams)
            scrapes = [scrape(metrics) for _ in range(options.calls)]
            whole, longest = Spread([sum(times) for times in scrapes]), Spread([max(times) for times in scrapes])
            kilobytes = len(metrics.expose().body) // 1024
            figures = " | ".join(f"{each / 1000:.1f}" for each in (whole.p50, whole.p99, longest.p50, longest.p99))
            print(f"| {name} | {size:,} | {kilobytes} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
