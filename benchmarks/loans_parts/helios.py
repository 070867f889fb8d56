"""A load like that of Helios: jobs that come with the hours of the day, most short, a few very long and large.

What is taken from Helios (SenseTime, April to September 2020; "Characterization and Prediction of Deep Learning
Workloads in Large-Scale GPU Datacenters", SC '21), and from which files of S-Lab-System-Group's repositories:

- GPU jobs run 206 s in the median and 6,652 s on average; the median job asks for one GPU (HeliosArtifact,
  analysis/1_compare with Philly trace/helios_cluster_summary.csv). Log-normal run times with this median and mean have
  a standard deviation of 2.64 of their logarithm.
- Larger jobs run longer: complete, canceled and failed jobs held 49,400 GPU-seconds each on average, twice the product
  of the means (same file). Here a job of g GPUs runs g^0.35 times as long.
- Submissions by hour and weekday: cluster Venus, 125,214 GPU jobs (Lucid, simulation/data/Venus/
  cluster_throughput.csv).
- What teams hold is far less regular: in the 16 virtual clusters of Earth in May 2020 (HeliosArtifact, Earth_vcs/*/
  cluster_sequence_vc.csv) the hour of the day explains 0.3 to 6.5 percent of the variance of what a team asks for.
  From the first 20 days, the mean of the hour of the week predicts what all teams ask for 4 hours later with a root
  mean square error of 131 GPUs, "as now" with 57, "as now" and the usual change of these hours with 54.

Ours: a team has `WORKLOADS` kinds of jobs, each with a size and a median of its own, which a history can learn; sizes
end at a node's 8 GPUs, so the jobs hold fewer GPU-seconds than in Helios.
"""

import math
import random
from collections.abc import Iterator
from statistics import NormalDist

from webhook.addons.simulation.traces.formats import Row

HOURS = (0.9, 0.66, 0.6, 0.38, 0.27, 0.21, 0.19, 0.22, 0.37, 0.8, 1.29, 1.47)
HOURS += (1.16, 1.3, 1.56, 1.66, 1.73, 1.73, 1.28, 1.31, 1.34, 1.36, 1.15, 1.04)
WEEKDAYS = (1.03, 1.07, 1.28, 1.21, 0.95, 0.68, 0.78)
SIZES = {1: 0.62, 2: 0.11, 4: 0.10, 8: 0.17}
MEDIAN, MEAN = 206, 6_652
SPREAD = math.sqrt(2 * math.log(MEAN / MEDIAN))
WITHIN = 1.3
LONGER = 0.35
WORKLOADS = 40
LONGEST = 14 * 86_400
SAMPLE = 20_000


class Team:
    """A team's kinds of jobs: sizes and medians are spread evenly over their distributions."""

    def __init__(self, dice: random.Random) -> None:
        normal = NormalDist(0, math.sqrt(SPREAD**2 - WITHIN**2))
        places = [(number + 0.5) / WORKLOADS for number in range(WORKLOADS)]
        sizes = [_size(place) for place in dice.sample(places, WORKLOADS)]
        middle = math.log(MEDIAN) - LONGER * sum(math.log(size) for size in sizes) / WORKLOADS
        medians = [middle + normal.inv_cdf(place) for place in dice.sample(places, WORKLOADS)]
        self.kinds = [(size, median + LONGER * math.log(size)) for size, median in zip(sizes, medians, strict=True)]
        self.weights = [(number + 1) ** -0.5 for number in range(WORKLOADS)]

    def job(self, dice: random.Random) -> tuple[int, int, int]:
        """Return the number of a job's kind, its GPUs, and its run time in seconds."""
        kind = dice.choices(range(WORKLOADS), self.weights)[0]
        size, median = self.kinds[kind]
        return kind, size, max(1, min(LONGEST, round(math.exp(dice.gauss(median, WITHIN)))))


def rows(loads: dict[str, float], *, days: int, seed: int) -> list[Row]:
    """Return the jobs of teams that ask for so many GPUs on average; the kind of a job is its user."""
    dice = random.Random(seed)
    found: list[Row] = []
    for name, gpus in loads.items():
        team = Team(dice)
        area = sum(size * seconds for _, size, seconds in (team.job(dice) for _ in range(SAMPLE))) / SAMPLE
        for at in _arrivals(gpus / area, days=days, dice=dice):
            kind, size, seconds = team.job(dice)
            number = len(found) + 1
            found.append(Row(number, f"job-{number}", size, at, seconds, team=name, user=f"{name}-{kind}"))
    return found


def _arrivals(rate: float, *, days: int, dice: random.Random) -> Iterator[int]:
    most, at = max(HOURS) * max(WEEKDAYS), 0.0
    while (at := at + dice.expovariate(rate * most)) < days * 86_400:
        if dice.random() * most < HOURS[int(at // 3600) % 24] * WEEKDAYS[int(at // 86_400) % 7]:
            yield int(at)


def _size(place: float) -> int:
    for size, part in SIZES.items():
        if (place := place - part) < 0:
            return size
    return max(SIZES)
