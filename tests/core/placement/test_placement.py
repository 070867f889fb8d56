"""The best nodes for a pod, against a sort of all nodes by class cost: lazy evaluation changes no list."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core.support.make import GIB, GPU, demand, node
from tests.examples import examples
from webhook.core.model.amounts import NodeName, ResourceName
from webhook.core.model.constraints import NO_CONSTRAINTS, Tier
from webhook.core.model.demand import Demand
from webhook.core.model.node import Node
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import DemandMix

KNOWN = [demand(1, cpu=8000), demand(2, cpu=16_000), demand(8, cpu=20_000), demand(0, cpu=8000)]
ROUNDED = [demand(1, cpu=cpu) for cpu in (500, 5000, 7900)] + [demand(0, cpu=cpu, memory=GIB) for cpu in (500, 9000)]
LARGE = [demand(1, cpu=30_000), demand(0, cpu=30_000)]
ALL = KNOWN + ROUNDED + LARGE
NODES = [node(f"n{i}", gpus=gpus, cpu=cpu) for i, (gpus, cpu) in enumerate([(8, 64_000), (8, 33_000), (2, 17_000)] * 2)]
NAMES = st.sampled_from([made.name for made in NODES])


class OrderMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.fleet = Fleet(DemandMix())
        self.fleet.track(GPU)
        for made in NODES:
            self.fleet.set(made)
        for _ in range(8):
            for each in KNOWN:
                self.fleet.gpus.demand_mix.note(each)
        self.held: list[tuple[NodeName, Demand]] = []
        self.advised: list[tuple[NodeName, Demand]] = []

    @rule(name=NAMES, wanted=st.sampled_from(ALL))
    def take(self, name, wanted):
        if self.fleet.fits(name, wanted):
            self.fleet.take(name, wanted)
            self.held.append((name, wanted))

    @rule(data=st.data())
    def give_back(self, data):
        if self.held:
            name, held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            self.fleet.take(name, held, sign=-1)

    @rule(name=NAMES, wanted=st.sampled_from(ALL))
    def advise(self, name, wanted):
        if self.fleet.fits(name, wanted):
            self.fleet.reserve(name, wanted)
            self.advised.append((name, wanted))

    @rule()
    def let_go(self):
        if self.advised:
            name, wanted = self.advised.pop(0)
            self.fleet.reserve(name, wanted, sign=-1)
            self.fleet.rerank(name)

    @rule(wanted=st.sampled_from(ALL), tier=st.sampled_from(list(Tier)))
    def ask(self, wanted, tier):
        self.check(wanted, tier)

    @invariant()
    def all_sizes_find_what_a_sort_finds(self):
        if len(self.held) % 4 == 3:  # in between, classes fill and empty that no ranking has met
            for wanted in ALL:
                self.check(wanted, Tier.GUARANTEED)

    def check(self, wanted, tier):
        want = tuple(self.sorted_nodes(wanted, tier))
        assert best_nodes(self.fleet, wanted, self.fleet.matching(NO_CONSTRAINTS), count=20, tier=tier) == want

    def sorted_nodes(self, wanted, tier) -> list[NodeName]:
        view = self.fleet.gpus.view(GPU)
        ranking = view.ranking(wanted, GPU, tier)

        def key(name):
            (number,) = view.classes.numbers(self.fleet.bit(name))
            node_class = view.classes.all[number]
            return sum(ranking.cost(node_class)), node_class.kind.capacity > 0, name

        return sorted((made.name for made in NODES if self.fleet.fits(made.name, wanted)), key=key)


TestOrder = OrderMachine.TestCase
TestOrder.settings = examples(20, stateful_step_count=25)


def test_a_pod_without_gpus_goes_to_gpu_nodes_where_no_other_has_room():
    fleet, other = Fleet(), ResourceName("amd.com/gpu")
    fleet.track(GPU)
    fleet.track(other)
    for made in (node("n0", gpus=4), node("n1", gpus=0), node("n2", gpus=4)):
        fleet.set(made)
    fleet.set(Node(NodeName("n3"), {**node("n3", gpus=0).allocatable, other: 4}))
    assert best_nodes(fleet, demand(0), -1, count=8) == ("n1", "n0", "n2", "n3")
    assert best_nodes(fleet, demand(0), fleet.bit(NodeName("n3")), count=8) == ("n3",)


def test_six_pods_of_three_fill_two_nodes_and_leave_two_whole():
    fleet = Fleet()
    fleet.track(GPU)
    for i in range(4):
        fleet.set(node(f"n{i}"))
    for _ in range(6):
        fleet.take(best_nodes(fleet, demand(3), fleet.matching(NO_CONSTRAINTS), count=8)[0], demand(3))
    assert [10 - fleet.free(f"n{i}", GPU) for i in range(4)] == [9, 9, 0, 0]
    assert best_nodes(fleet, demand(8), fleet.matching(NO_CONSTRAINTS), count=8) == ("n2", "n3")


def test_wholly_free_nodes_come_last_while_few_are_left():
    fleet = Fleet()
    fleet.track(GPU)
    fleet.set(node("small", gpus=2))
    fleet.set(node("large", gpus=10))
    fleet.take("large", demand(1))
    want_kept, want_free = ("large", "small"), ("small", "large")
    usable = fleet.matching(NO_CONSTRAINTS)
    assert best_nodes(fleet, demand(1), usable, count=2, keep_whole=1) == want_kept
    assert best_nodes(fleet, demand(1), usable, count=2, keep_whole=0) == want_free
    assert best_nodes(fleet, demand(2), usable, count=2, keep_whole=1) == want_free, (
        "a pod of the whole node may have it"
    )
