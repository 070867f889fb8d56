"""Scenes of a plan: victims, waiting pods and nodes."""

from collections import Counter
from itertools import chain, combinations, product

from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, gpus, node, requirement, resident
from webhook.core.model.amounts import ONE_GPU, GangId, Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS, pack
from webhook.core.model.policy import LabelSelector, ReclaimCost
from webhook.core.model.topology import AffinityRule
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.pod_counts import PlacedPod, PodCounts
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod, SchedulerReport
from webhook.core.reclaim.victims import NEVER, GuardId, Victim, VictimCost, VictimIndex

NOW = 100_000
SMALL = {"cpu": 1000, "memory": 1}


def victim(name, count=1, *, on="n0", team="team-a", started=0, saved=None, gang=None, **more):
    return Victim(
        Uid(name),
        Namespace(team),
        name,
        TeamName(team),
        NodeName(on),
        demand(count, **SMALL),
        started_at=started,
        saved_at=started if saved is None else saved,
        gang=None if gang is None else GangId(gang),
        **more,
    )


def waiting(name="b", count=1, *, since=0, gang=None, constraints=NO_CONSTRAINTS, **more):
    wants = more.pop("demand", None) or demand(count, **SMALL)
    return ReclaimPod(
        resident(uid=name, namespace="team-b", demand=wants, created=since),
        constraints=constraints,
        gang=None if gang is None else GangId(gang),
        report=SchedulerReport(more.pop("reported_at", 0)),
        **more,
    )


def scene(victims, *, nodes=1, size=8, others=(), **more):
    fleet = Fleet()
    fleet.track(GPU)
    for number in range(nodes):
        fleet.set(node(f"n{number}", gpus=size, labels={"host": f"n{number}"}))
    for each in (*victims, *others):
        fleet.take(each.node, each.demand, holder=each.uid)
    return ReclaimSnapshot(fleet=fleet, victim_index=VictimIndex(victims), now=NOW, **more)


def gone(round_):
    return [each.name for move in round_.moves for each in move.victims]


def causes(round_):
    return {each.waiting.name: each.cause for each in round_.refused}


APP = {"app": "web"}
APART = AffinityRule(("host",), True, LabelSelector((requirement("app", "In", "web"),)))
"""A pod with anti-affinity to others of its app."""


def alone(name="b", count=1, **more):
    return waiting(name, count, labels=APP, topology=(APART,), **more)


def like(*nodes):
    """Pods of the app on these nodes."""
    found = PodCounts()
    there = [resident(uid=f"s-{name}", namespace="team-b", packed=pack(APP), node=name) for name in nodes]
    found.sources.append(lambda namespace: [PlacedPod(pod, pod.node) for pod in there if pod.namespace == namespace])
    return found


counts = st.integers(1, 3)


@st.composite
def scenes(draw, *, nodes=3, size=6, saved=(3, 4, 5, 6)):
    """A small cluster, wholly or partly borrowed: singles, gangs, budgets, pods of other teams."""
    victims, others = [], []
    for place in range(nodes):
        room = size
        while room > 0 and draw(st.integers(0, 5)):
            count = min(room, draw(counts))
            room -= count
            if draw(st.integers(0, 4)):
                number = len(victims)
                victims.append(
                    victim(
                        f"v{number}",
                        count,
                        on=f"n{place}",
                        team=draw(st.sampled_from(["team-a", "team-c"])),
                        started=draw(st.integers(0, 3)),
                        saved=draw(st.sampled_from(saved)),
                        gang=draw(st.sampled_from([None, None, None, "g", "h"])),
                        guards=draw(st.sampled_from([(), (), (GuardId("one"),)])),
                        until=draw(st.sampled_from([0, 0, 0, NOW + 1])),
                        is_idle=draw(st.sampled_from([False, False, True])),
                    )
                )
            else:
                others.append(victim(f"o{place}-{room}", count, on=f"n{place}"))
    over = {TeamName("team-a"): gpus(draw(st.integers(0, 3))), TeamName("team-c"): gpus(1)}
    order = tuple(draw(st.permutations(ReclaimCost)))
    idle = {each.uid for each in victims if each.is_idle} if draw(st.booleans()) else set()
    left = {GuardId("one"): 1}
    return scene(victims, nodes=nodes, size=size, others=others, over_share=over, left=left, order=order, idle=idle)


def units(scene_):
    """All possible victims: singles, and gangs whole."""
    made = {}
    for each in scene_.victim_index:
        made.setdefault(each.gang or each.uid, []).append(each)
    return [tuple(group) for group in made.values() if any(each.until <= NOW for each in group)]


def missing(scene_, asked, places):
    """How many GPUs the nodes lack for these demands there."""
    wanted = Counter()
    for each, place in zip(asked, places, strict=True):
        wanted[place] += dict(each.requests)[GPU]
    return {place: max(0, count - scene_.fleet.free(place, GPU)) for place, count in wanted.items()}


def cost(scene_, chosen, lacking):
    """The cost of evicting these units where nodes lack so many GPUs; None if that is not enough or not allowed."""
    members = list(chain.from_iterable(chosen))
    drawn = Counter(guard for each in members for guard in each.guards)
    if any(count > scene_.left[guard] for guard, count in drawn.items()):
        return None
    freed = Counter()
    for each in members:
        freed[each.node] += dict(each.demand.requests)[GPU]
    if any(freed[place] < count for place, count in lacking.items()):
        return None
    most = max(scene_.over_share.values())
    return VictimCost(
        gangs=sum(loses_more(each, lacking) for each in chosen),
        surplus=min(
            sum(each.demand.gpus for each in members if each.saved_at != NEVER),
            sum(each.demand.gpus for each in members) - sum(lacking.values()) * ONE_GPU,
        ),
        lost_work=sum(each.demand.gpus * max(0, NOW - each.saved_at) for each in members),
        over_share=sum(each.demand.gpus * (most - scene_.over_share[each.team]) for each in members),
        age=sum(NOW - each.started_at for each in members),
        used=sum(each.demand.gpus for each in members if each.uid not in scene_.idle) if scene_.idle else 0,
    )


def loses_more(unit, lacking):
    """Whether pods that go together make the room also without one of them."""
    freed = Counter()
    for each in unit:
        freed[each.node] += dict(each.demand.requests)[GPU]
    left = [freed[each.node] - dict(each.demand.requests)[GPU] >= lacking.get(each.node, 0) for each in unit]
    return len(unit) > 1 and any(left)


def cheapest(scene_, *asked):
    """The rank of the cheapest choice of nodes for these demands, and of victims; None without any."""
    names = [each.name for each in scene_.fleet.nodes()]
    ranks = []
    for places in product(names, repeat=len(asked)):
        lacking = missing(scene_, asked, places)
        here = [unit for unit in units(scene_) if any(each.node in lacking for each in unit)]
        for chosen in chain.from_iterable(combinations(here, count) for count in range(len(here) + 1)):
            found = cost(scene_, chosen, lacking)
            if found is not None:
                ranks.append(found.ranked(scene_.order))
    return min(ranks, default=None)
