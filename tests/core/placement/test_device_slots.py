"""Room on single devices, against a plain list of assignments."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core.support.make import GIB, node, resident, world
from tests.examples import examples
from webhook.core.model.amounts import CPU, ResourceName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS
from webhook.core.model.demand import PerDevice, demand_of
from webhook.core.model.node import NO_DEVICES, Devices
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.devices import best_fit_devices
from webhook.core.placement.fleet import Fleet

MEM = ResourceName("aliyun.com/gpu-mem")
NAMES = ["n0", "n1", "n2"]
LAYOUTS = [NO_DEVICES, Devices(MEM, (16, 16)), Devices(MEM, (16, 24, 80)), Devices(ResourceName("other"), (4,))]
ASKS = [
    PerDevice(MEM, 5),
    PerDevice(MEM, 12),
    PerDevice(MEM, 8, number=2),
    PerDevice(MEM, 1, parts=1),
    PerDevice(MEM, 50, parts=100),
    PerDevice(MEM, 1, number=2, parts=1),
]


def shared(ask: PerDevice):
    return demand_of({CPU: 100}, {}, per_device=ask)


class DeviceMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.fleet = Fleet()
        self.layouts: dict[str, Devices] = {}
        self.held: dict[Uid, tuple[str, PerDevice]] = {}
        self.serial = 0

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS))
    def set_node(self, name, layout):
        self.fleet.set(replace(node(name, memory=GIB), devices=layout))
        self.layouts[name] = layout

    @rule(name=st.sampled_from(NAMES))
    def remove_node(self, name):
        self.fleet.remove(name)
        self.layouts.pop(name, None)

    @rule(ask=st.sampled_from(ASKS), name=st.sampled_from(NAMES), known=st.sampled_from([(), (), (0,), (1,), (7,)]))
    def take(self, ask, name, known):
        holder = Uid(f"u{self.serial}")
        self.serial += 1
        self.fleet.take(name, shared(ask), holder=holder, devices=known)
        self.held[holder] = (name, ask)

    @rule(data=st.data())
    def release(self, data):
        if self.held:
            holder = data.draw(st.sampled_from(sorted(self.held)))
            name, ask = self.held.pop(holder)
            self.fleet.take(name, shared(ask), sign=-1, holder=holder)

    @rule()
    def sort_nodes(self):
        self.fleet = self.fleet.sorted_copy()

    def free(self, name) -> list[int]:
        layout = self.layouts[name]
        left = list(layout.capacities)
        for holder, (where, ask) in self.held.items():
            if where == name and ask.resource == layout.resource:
                for index in self.fleet.devices_of(name, holder):
                    left[index] -= ask.on(layout.capacities[index])
        return left

    def able(self, ask, left_of) -> int:
        bits = 0
        for name, layout in self.layouts.items():
            pairs = zip(left_of(name), layout.capacities, strict=True)
            enough = sum(left >= ask.on(capacity) for left, capacity in pairs) >= ask.number
            bits |= (layout.resource == MEM and enough) * self.fleet.bit(name)
        return bits

    @invariant()
    def the_same_nodes_have_room_as_in_a_scan(self):
        usable = self.fleet.matching(NO_CONSTRAINTS)
        for ask in ASKS:
            want = self.able(ask, self.free)
            assert self.fleet.with_room(shared(ask), usable) == want
            assert all(self.fleet.fits(name, shared(ask)) == bool(want & self.fleet.bit(name)) for name in NAMES)
            empty = self.able(ask, lambda name: self.layouts[name].capacities)
            assert self.fleet.with_capacity(shared(ask), usable) == empty


TestDevices = DeviceMachine.TestCase
TestDevices.settings = examples(25, stateful_step_count=25)


def test_the_fullest_device_that_fits_is_taken_and_the_emptiest_where_none_does():
    assert best_fit_devices([16, 9, 12], (16, 16, 16), PerDevice(MEM, 10)) == (2,)
    assert best_fit_devices([16, 9, 12], (16, 16, 16), PerDevice(MEM, 10, number=2)) == (2, 0)
    assert best_fit_devices([3, 9, 4], (16, 16, 16), PerDevice(MEM, 10)) == (1,)


def test_two_halves_on_two_devices_are_not_a_whole_one():
    fleet = Fleet()
    fleet.set(node(devices=Devices(MEM, (16, 16))))
    for holder, index in (("a", 0), ("b", 1)):
        fleet.take("n0", shared(PerDevice(MEM, 8)), holder=Uid(holder), devices=(index,))
    assert fleet.fits("n0", shared(PerDevice(MEM, 8)))
    assert not fleet.fits("n0", shared(PerDevice(MEM, 9)))
    assert not fleet.fits("n0", shared(PerDevice(MEM, 1, parts=1)))


def test_a_pod_keeps_its_assumed_device_until_the_cluster_names_another():
    place = world(nodes=[node(devices=Devices(MEM, (16, 16)))])
    ask = shared(PerDevice(MEM, 6))
    for uid in ("a", "b", "c"):
        place.set_pod(resident(uid=uid, demand=ask, node="n0"))
    assert [place.fleet.devices_of("n0", Uid(uid)) for uid in ("a", "b", "c")] == [(0,), (0,), (1,)]
    place.remove_pod(Uid("a"))
    place.set_pod(resident(uid="c", demand=ask, node="n0", is_terminating=True))
    assert place.fleet.devices_of("n0", Uid("c")) == (1,)
    place.set_pod(resident(uid="c", demand=ask, node="n0", devices=(0,)))
    assert place.fleet.devices_of("n0", Uid("c")) == (0,)


def test_a_device_that_is_gone_has_no_room():
    fleet = Fleet()
    fleet.set(node(devices=Devices(MEM, (16, 0))))
    whole = shared(PerDevice(MEM, 1, parts=1))
    fleet.take("n0", whole, holder=Uid("a"))
    assert fleet.devices_of("n0", Uid("a")) == (0,)
    assert not fleet.fits("n0", whole)
    fleet.set(node(devices=Devices(MEM, (0, 0))))
    assert best_nodes(fleet, whole, fleet.matching(NO_CONSTRAINTS), count=1) == ()
