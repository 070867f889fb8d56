"""After every change of a node, without a restart, decisions fit the present nodes."""

from dataclasses import replace

from tests.core.support import make
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import ResourceName
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.demand import PerDevice, demand_of
from webhook.core.model.node import Devices
from webhook.core.model.reasons import Code
from webhook.policy.sections import BUILT_IN

ONE_G, THREE_G = ResourceName("nvidia.com/mig-1g.5gb"), ResourceName("nvidia.com/mig-3g.20gb")
SHARE = ResourceName("aliyun.com/gpu-mem")


def chosen(place, count=1, **more):
    """The nodes that a new pod would get, or the warnings why none."""
    decision = admit(make.pod(count, **more), make.ALICE, place)
    assert isinstance(decision, Admit)
    return list(decision.node_choice.nodes) or [warning.code for warning in decision.warnings]


def refused(place, count):
    decision = admit(make.pod(count), make.ALICE, place)
    assert isinstance(decision, Deny)
    return [reason.code for reason in decision.reasons]


def pieces(name, number):
    return {"demand": demand_of({name: number, make.PODS: 1}, BUILT_IN)}


def offering(place, name, **amounts):
    """The same node with other amounts to allocate; 0 takes a resource away."""
    before = place.fleet.get(name)
    now = {**before.allocatable, **{ResourceName(key): value for key, value in amounts.items()}}
    place.set_node(replace(before, allocatable={key: value for key, value in now.items() if value}))


def test_a_node_that_is_added_is_used_at_once():
    place = make.world(nodes=[make.node("n0", gpus=2)])
    assert refused(place, 4) == [Code.NEVER_FITS]
    place.set_node(make.node("n1", gpus=4))
    assert chosen(place, 4) == ["n1"]


def test_a_cordoned_node_gets_no_new_pods_and_keeps_its_own():
    place = make.world(nodes=[make.node("n0")], residents=[make.resident(3, uid="r", node="n0")])
    place.set_node(make.node("n0", is_cordoned=True))
    assert chosen(place) == [Code.NO_ROOM_NOW]
    assert place.usage("team-a").total == make.gpus(3)
    place.set_node(make.node("n0", is_ready=False))
    assert chosen(place) == [Code.NO_ROOM_NOW]
    place.set_node(make.node("n0"))
    assert chosen(place, 7) == ["n0"]
    assert chosen(place, 8) == [Code.NO_ROOM_NOW]


def test_a_repartitioned_gpu_offers_the_new_slices_and_the_old_stay_charged():
    place = make.world(make.policy(resources=BUILT_IN), nodes=[make.node("n0", gpus=0)])
    offering(place, "n0", **{ONE_G: 7})
    place.set_pod(make.resident(uid="old", node="n0", **pieces(ONE_G, 1)))
    assert chosen(place, **pieces(ONE_G, 6)) == ["n0"]
    offering(place, "n0", **{ONE_G: 0, THREE_G: 2})
    assert chosen(place, **pieces(ONE_G, 1)) == [Code.NEVER_FITS]
    assert chosen(place, **pieces(THREE_G, 2)) == ["n0"]
    assert place.usage("team-a").total == make.gpus(1) // 7
    place.remove_pod("old")
    offering(place, "n0", **{ONE_G: 7, THREE_G: 0})
    assert chosen(place, **pieces(ONE_G, 7)) == ["n0"]


def test_less_than_is_used_admits_nothing_until_enough_has_ended():
    place = make.world(
        nodes=[make.node("n0")], residents=[make.resident(4, uid=uid, node="n0") for uid in ("one", "two")]
    )
    offering(place, "n0", **{make.GPU: 6})
    assert place.fleet.free("n0", make.GPU) == -2
    assert chosen(place) == [Code.NO_ROOM_NOW]
    place.remove_pod("one")
    assert chosen(place, 2) == ["n0"]
    assert chosen(place, 3) == [Code.NO_ROOM_NOW]


def test_a_failed_device_is_not_used_until_it_recovers():
    place = make.world(nodes=[make.node("n0", gpus=2)], residents=[make.resident(1, uid="r", node="n0")])
    offering(place, "n0", **{make.GPU: 1})
    assert chosen(place) == [Code.NO_ROOM_NOW]
    offering(place, "n0", **{make.GPU: 2})
    assert chosen(place) == ["n0"]


def test_all_devices_may_fail_and_recover():
    place = make.world(nodes=[make.node("n0", gpus=2)], residents=[make.resident(1, uid="r", node="n0")])
    offering(place, "n0", **{make.GPU: 0})
    assert chosen(place) == [Code.NEVER_FITS]
    place.remove_pod("r")
    offering(place, "n0", **{make.GPU: 2})
    assert chosen(place, 2) == ["n0"]


def test_a_failed_shared_device_has_no_room():
    weights = {**BUILT_IN, SHARE: make.gpus(1) // 16}
    place = make.world(make.policy(resources=weights), nodes=[])

    def sized(*capacities):
        return make.node("n0", gpus=0), Devices(SHARE, capacities)

    def set_devices(*capacities):
        node, devices = sized(*capacities)
        place.set_node(replace(node, allocatable={**node.allocatable, SHARE: sum(capacities)}, devices=devices))

    def asking(memory):
        requests = {SHARE: memory, make.PODS: 1}
        return {"demand": demand_of(requests, weights, per_device=PerDevice(SHARE, memory))}

    set_devices(16, 16)
    place.set_pod(make.resident(uid="r", node="n0", devices=(0,), **asking(10)))
    assert chosen(place, **asking(16)) == ["n0"]
    set_devices(16)
    assert chosen(place, **asking(7)) == [Code.NO_ROOM_NOW]
    assert chosen(place, **asking(6)) == ["n0"]
    set_devices(16, 16)
    assert chosen(place, **asking(16)) == ["n0"]


def test_a_node_that_comes_back_still_has_its_pods():
    place = make.world(nodes=[make.node("n0")], residents=[make.resident(9, uid="r", node="n0")])
    place.remove_node("n0")
    assert chosen(place) == [Code.NEVER_FITS]
    assert place.usage("team-a").total == make.gpus(9)
    place.set_node(make.node("n0"))
    assert chosen(place, 1) == ["n0"]
    assert chosen(place, 2) == [Code.NO_ROOM_NOW]
