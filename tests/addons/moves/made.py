"""Small clusters of pods that may be moved, and the cheapest moves by trying every choice."""

from collections import Counter
from itertools import chain, combinations, product

from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, node
from tests.core.support.scenes import NOW, SMALL
from webhook.addons.moves.candidates import MovablePod, Target
from webhook.addons.moves.search import TriedMoves
from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.victims import GuardId, Victim

EVERYWHERE = -1
ONE = GuardId("one")


def movable(name, count=1, *, on="n0", saved=0, where=EVERYWHERE, guards=(), workload="", **requests):
    victim = Victim(
        Uid(name),
        Namespace("team-a"),
        name,
        TeamName("team-a"),
        NodeName(on),
        demand(count, **(SMALL | requests)),
        started_at=0,
        saved_at=saved,
        guards=guards,
    )
    return MovablePod(victim, where, workload or f"of {name}")


def target(count=1, *, name="b", slots=EVERYWHERE, since=0, **more):
    return Target(name, TeamName("team-b"), more.pop("demand", None) or demand(count, **SMALL), slots, since, **more)


def fleet(sizes, taken=(), *, cpu=64_000, **more):
    """Nodes n0, n1 … with these numbers of GPUs, and what pods take there."""
    made = Fleet()
    made.track(GPU)
    for number, size in enumerate(sizes):
        made.set(node(f"n{number}", gpus=size, cpu=cpu, **more))
    for name, requests, uid in taken:
        made.take(NodeName(name), requests, holder=uid)
    return made


def tried(pods, *, sizes=(4, 4), fixed=(), left=None, per_workload=9, **more):
    """The pods on these nodes; `fixed` are demands by node that never move."""
    taken = [(each.node, each.victim.demand, each.uid) for each in pods]
    taken += [(place, demand(count, **SMALL), Uid(f"fixed-{number}")) for number, (place, count) in enumerate(fixed)]
    return TriedMoves(fleet(sizes, taken, **more), pods, left=left or {}, per_workload=per_workload)


def rank(moves):
    return (
        sum(move.lost_work for move in moves),
        sum(move.pod.victim.demand.gpus for move in moves),
        len(moves),
    )


@st.composite
def clusters(draw, *, nodes=4, size=4):
    """Pods of one to three GPUs on a few nodes: bound to some of them, with budgets, workloads, fixed neighbors."""
    pods, fixed = [], []
    for place in range(nodes):
        room = size
        spare = draw(st.integers(0, size - 1))
        while room > spare:
            count = min(room - spare, draw(st.integers(1, 3)))
            room -= count
            if draw(st.integers(0, 7)):
                pods.append(
                    movable(
                        f"p{len(pods)}",
                        count,
                        on=f"n{place}",
                        saved=NOW - draw(st.integers(0, 3)),
                        where=draw(st.sampled_from([EVERYWHERE, EVERYWHERE, EVERYWHERE, 0b0011, 0b1101])),
                        guards=draw(st.sampled_from([(), (), (), (ONE,)])),
                        workload=draw(st.sampled_from(["", "", "", "w"])),
                        cpu=draw(st.sampled_from([1000, 1000, 3000])),
                    )
                )
            else:
                fixed.append((f"n{place}", count))
    return tried(
        pods,
        sizes=[size] * nodes,
        fixed=fixed,
        left={ONE: draw(st.integers(0, 2))},
        per_workload=draw(st.integers(1, 2)),
        cpu=draw(st.sampled_from([64_000, 64_000, 6_000])),
    )


def cheapest(cluster, wanted):
    """The rank of the cheapest moves, found by trying every set of pods and every place for each; None for none."""
    best = None
    for fleet_node in list(cluster.fleet.nodes()):
        place = fleet_node.name
        if not cluster.fleet.bit(place) & wanted.slots:
            continue
        here = cluster.on(place)
        for chosen in chain.from_iterable(combinations(here, count) for count in range(len(here) + 1)):
            lost = sum(each.lost_work(NOW) for each in chosen)
            cost = lost, sum(each.victim.demand.gpus for each in chosen), len(chosen)
            is_less = best is None or cost < best
            if is_less and _is_allowed(cluster, chosen) and _is_possible(cluster, wanted, place, chosen):
                best = cost
    return best


def _is_allowed(cluster, chosen):
    drawn = Counter(guard for each in chosen for guard in each.guards)
    moved = Counter(each.workload for each in chosen)
    return all(count <= cluster.left[guard] for guard, count in drawn.items()) and all(
        count <= cluster.of_workload(workload) for workload, count in moved.items()
    )


def _is_possible(cluster, wanted, place, chosen):
    names = [each.name for each in cluster.fleet.nodes() if each.name != place]
    return any(_is_there_room(cluster, wanted, place, chosen, to) for to in product(names, repeat=len(chosen)))


def _is_there_room(cluster, wanted, place, chosen, to):
    changes = [(place, each.victim.demand, -1) for each in chosen] + [(place, wanted.demand, 1)]
    changes += [(name, each.victim.demand, 1) for each, name in zip(chosen, to, strict=True)]
    if any(not cluster.fleet.bit(name) & each.where for each, name in zip(chosen, to, strict=True)):
        return False
    left = Counter()
    for name, requests, sign in changes:
        for resource, amount in requests.requests:
            left[name, resource] += sign * amount
    return all(cluster.fleet.free(name, resource) >= amount for (name, resource), amount in left.items())
