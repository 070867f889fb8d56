"""Classes against nodes: after any events, the ranking orders nodes by the measure of each single node."""

from dataclasses import replace
from itertools import product

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.support.make import GIB, GPU, demand, node
from tests.examples import examples
from webhook.core.model.amounts import CPU, MEMORY, PODS, ResourceName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS, Tier
from webhook.core.model.demand import Demand, PerDevice, Shape, demand_of
from webhook.core.model.node import Devices
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import WEIGHT, DemandMix, resource_of
from webhook.core.placement.gpu_index import GpuView
from webhook.core.placement.score import Ranking

MILLI = ResourceName("example.com/gpu-milli")


def shared(milli: int, *, number: int = 1, cpu: int = 4000, memory: int = 16 * GIB) -> Demand:
    requests = {CPU: cpu, MEMORY: memory, PODS: 1, MILLI: milli * number}
    return demand_of(requests, {MILLI: 840}, per_device=PerDevice(MILLI, milli, number))


TIER = st.sampled_from(list(Tier))
PLAIN = [demand(1), demand(3), demand(8), demand(2, cpu=500, memory=GIB), demand(4, cpu=30_000)]
SHARED = [shared(300), shared(500, cpu=12_000), shared(1000), shared(1000, number=2), shared(1000, number=4)]
NODES = [
    *(
        replace(node(f"p{i}", gpus=gpus, cpu=cpu))
        for i, (gpus, cpu) in enumerate([(8, 64_000), (8, 40_000), (2, 9000)])
    ),
    *(
        replace(
            node(f"s{i}", gpus=0, cpu=cpu, memory=96 * GIB),
            devices=Devices(MILLI, (1000,) * gpus),
            allocatable={CPU: cpu, MEMORY: 96 * GIB, PODS: 110, MILLI: 1000 * gpus},
        )
        for i, (gpus, cpu) in enumerate([(4, 64_000), (4, 20_000), (2, 64_000), (1, 4000)])
    ),
]


class RankingMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.demand_mix = DemandMix()
        self.fleet = Fleet(self.demand_mix)
        self.held: dict[Uid, tuple[str, Demand]] = {}
        self.tiers: dict[Uid, Tier] = {}
        self.serial = 0

    @initialize(seen=st.lists(st.sampled_from(PLAIN + SHARED), max_size=40))
    def start(self, seen):
        for resource in (GPU, MILLI):
            self.fleet.track(resource)
        for made in NODES:
            self.fleet.set(made)
        for each in seen:
            for _ in range(16):
                self.demand_mix.note(each)

    @rule(wanted=st.sampled_from(PLAIN + SHARED), tier=TIER)
    def place(self, wanted, tier):
        self.demand_mix.note(wanted)
        found = best_nodes(self.fleet, wanted, self.fleet.matching(NO_CONSTRAINTS), count=1, tier=tier)
        if found:
            self.take(wanted, found[0], tier)

    @rule(wanted=st.sampled_from(PLAIN + SHARED), made=st.sampled_from(NODES), tier=TIER)
    def take_somewhere(self, wanted, made, tier):
        if self.fleet.fits(made.name, wanted):
            self.take(wanted, made.name, tier)

    def take(self, wanted, name, tier):
        uid = Uid(f"u{self.serial}")
        self.serial += 1
        self.fleet.set_borrowed(uid, wanted, is_borrowed=tier is Tier.PREEMPTIBLE)
        self.tiers[uid] = tier
        self.fleet.take(name, wanted, holder=uid)
        self.held[uid] = (name, wanted)

    @rule(data=st.data())
    def give_back(self, data):
        if self.held:
            uid = data.draw(st.sampled_from(sorted(self.held)))
            name, held = self.held.pop(uid)
            self.fleet.take(name, held, sign=-1, holder=uid)
            self.fleet.set_borrowed(uid, held, is_borrowed=False)

    @rule(data=st.data())
    def change_tier(self, data):
        if self.held:
            uid = data.draw(st.sampled_from(sorted(self.held)))
            name, held = self.held[uid]
            was_borrowed = self.tiers[uid] is Tier.PREEMPTIBLE
            self.tiers[uid] = Tier.GUARANTEED if was_borrowed else Tier.PREEMPTIBLE
            self.fleet.set_borrowed(uid, held, is_borrowed=not was_borrowed, on=name)

    def devices(self, made) -> list[int]:
        """What each device of a node has left, in thousandths."""
        if not made.devices.capacities:
            return [1000] * self.fleet.free(made.name, GPU)
        left = list(made.devices.capacities)
        for uid, (name, held) in self.held.items():
            for index in self.fleet.devices_of(name, uid) if name == made.name else ():
                left[index] -= held.per_device.amount
        return left

    def useful(self, devices, cpu, memory, view: GpuView, resource) -> int:
        weights = self.demand_mix.expected(resource)
        arrivals, whole, total = sum(weights.values()), devices.count(1000), 0
        for shape, weight in weights.items():
            rounded = view.fragmentation.rounded(shape)
            share = 1000 * shape.amount // (shape.parts or 1000)
            if rounded.cpu <= cpu and rounded.memory <= memory and (shape.number == 1 or shape.number <= whole):
                least = share if shape.number == 1 else 1000
                total += weight * WEIGHT // arrivals * sum(each for each in devices if each >= least)
        return total

    def cost(self, made, wanted, view: GpuView, ranking: Ranking) -> int:
        """The same measure for one node, without classes, marks or tables."""
        resource, shape = resource_of(wanted), ranking.shape
        assert isinstance(shape, Shape)
        cpu, memory = self.fleet.free(made.name, CPU), self.fleet.free(made.name, MEMORY)
        devices = self.devices(made)
        before = self.useful(devices, cpu, memory, view, resource)
        share = wanted.per_device.amount if wanted.per_device else 1000
        for _ in range(shape.number):
            best_fit_devices = min(each for each in devices if each >= share)
            devices.remove(best_fit_devices)
            devices.append(best_fit_devices - share if best_fit_devices > share else 0)
        after = self.useful(devices, max(0, cpu - shape.cpu), max(0, memory - shape.memory), view, resource)
        return before - after

    @invariant()
    def nodes_come_in_the_order_of_what_they_cost_one_by_one(self):
        usable = self.fleet.matching(NO_CONSTRAINTS)
        for wanted, tier in product(PLAIN + SHARED, Tier):
            able = {made.name: made for made in NODES if made.name in self.fitting(wanted)}
            got = best_nodes(self.fleet, wanted, usable, count=20, tier=tier)
            assert sorted(got) == sorted(able)
            resource = resource_of(wanted)
            view = self.fleet.gpus.view(resource)
            ranking = view.ranking(wanted, resource, tier)
            totals = []
            for name in got:
                (number,) = view.classes.numbers(self.fleet.bit(name))
                costs = ranking.cost(view.classes.all[number])
                if shape_is_exact(ranking.shape, view):
                    assert costs.useless == self.cost(able[name], wanted, view, ranking)
                assert costs.mixing == self.strangeness(name, tier) * mixing_of(view)
                totals.append((sum(costs), bool(view.classes.all[number].kind.capacity), name))
            assert totals == sorted(totals), "the cheapest first, then partly used ones, then by name"

    def strangeness(self, name, tier) -> int:
        there = {self.tiers[uid] for uid, (on, _) in self.held.items() if on == name}
        return 0 if not there - {tier} else 1 if tier in there else 2

    def fitting(self, wanted) -> set[str]:
        return {made.name for made in NODES if self.fleet.fits(made.name, wanted)}


def mixing_of(view: GpuView) -> int:
    """The lowest cost of sharing a node: more than all GPUs of the largest node."""
    return (view.scale.devices + 1) * 1000 * WEIGHT


def shape_is_exact(shape: Shape, view: GpuView) -> bool:
    """Marks are exact for sizes that are steps; a size that never came may be larger than any step."""
    return shape.cpu in {0, *view.fragmentation.cpu.steps} and shape.memory in {0, *view.fragmentation.memory.steps}


TestRanking = RankingMachine.TestCase
TestRanking.settings = examples(10, stateful_step_count=12)
