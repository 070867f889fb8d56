"""The index against a plain scan: after any change of nodes and pods, both give the same results."""

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core.support.make import GPU, demand, node, requirement
from tests.examples import examples
from webhook.core.model.constraints import NO_CONSTRAINTS, Constraints, Effect, NodeTerm, Taint, Toleration
from webhook.core.model.node import Node
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet

NAMES = [f"n{i}" for i in range(6)]
SHAPES = [demand(1), demand(3), demand(8), demand(2, cpu=500, memory=1), demand(4, cpu=30_000), demand(0, cpu=100)]
CONSTRAINTS = [
    NO_CONSTRAINTS,
    Constraints(node_selector=(("zone", "a"),)),
    Constraints(terms=(NodeTerm((requirement("memory", "Gt", "40000"),)),)),
    Constraints(tolerations=(Toleration("gpu", exists=True),)),
]
nodes = st.builds(
    node,
    st.sampled_from(NAMES),
    gpus=st.sampled_from([0, 2, 8, 10]),
    cpu=st.sampled_from([16_000, 64_000]),
    labels=st.sampled_from([{}, {"zone": "a"}, {"zone": "b", "memory": "81920"}]),
    taints=st.sampled_from([(), (Taint("gpu", Effect.NO_SCHEDULE),)]),
    is_ready=st.booleans(),
    is_cordoned=st.booleans(),
)


class FleetMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.fleet = Fleet()
        self.fleet.track(GPU)
        self.known: dict[str, Node] = {}
        self.pods: list[tuple[str, object]] = []

    @rule(made=nodes)
    def set_node(self, made):
        self.fleet.set(made)
        self.known[made.name] = made

    @rule(name=st.sampled_from(NAMES))
    def remove_node(self, name):
        self.fleet.remove(name)
        self.known.pop(name, None)

    @rule(name=st.sampled_from(NAMES), shape=st.sampled_from(SHAPES))
    def take(self, name, shape):
        self.fleet.take(name, shape)
        self.pods.append((name, shape))

    @rule(data=st.data())
    def give_back(self, data):
        if self.pods:
            name, shape = self.pods.pop(data.draw(st.integers(0, len(self.pods) - 1)))
            self.fleet.take(name, shape, sign=-1)

    @rule()
    def sort_nodes(self):
        self.fleet = self.fleet.sorted_copy()

    def free(self, made: Node, resource: str) -> int:
        return made.allocatable[resource] - sum(
            dict(shape.requests).get(resource, 0) for name, shape in self.pods if name == made.name
        )

    @invariant()
    def same_as_a_scan(self):
        for constraints in CONSTRAINTS:
            usable = self.fleet.matching(constraints)
            for shape in SHAPES:
                able = [
                    made
                    for made in self.known.values()
                    if made.is_open
                    and constraints.admits(made.name, made.labels, made.taints)
                    and all(r in made.allocatable and self.free(made, r) >= n for r, n in shape.requests)
                ]
                got = best_nodes(self.fleet, shape, usable, count=20)
                assert sorted(got) == sorted(made.name for made in able)
                assert all(self.fleet.fits(made.name, shape) for made in able)


TestFleet = FleetMachine.TestCase
TestFleet.settings = examples(25, stateful_step_count=25)


def test_slots_follow_names_after_sorting():
    names = [f"n{i:03}" for i in range(150)]
    shuffled = random.Random(7).sample(names, len(names))
    fleet = Fleet()
    fleet.track(GPU)
    for name in shuffled:
        fleet.set(node(name))
    sorted_copy = fleet.sorted_copy()
    assert best_nodes(sorted_copy, demand(1), sorted_copy.matching(NO_CONSTRAINTS), count=150) == tuple(names)


def test_a_node_shrunk_below_use_has_negative_room_and_recovers():
    fleet = Fleet()
    fleet.track(GPU)
    fleet.set(node("n0", gpus=8))
    fleet.take("n0", demand(6))
    fleet.set(node("n0", gpus=4))
    assert fleet.free("n0", GPU) == -2
    assert not fleet.fits("n0", demand(1))
    fleet.set(node("n0", gpus=8))
    assert fleet.fits("n0", demand(2))
