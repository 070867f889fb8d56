"""The GPUs of all nodes by resource: after any change of nodes and pods, counts and classes are those of a scan."""

import random
from collections import deque
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, node
from webhook.core.model.amounts import ResourceName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.placement import gpu_index
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.gpu_index import GpuCount, GpuGroup
from webhook.core.placement.score import SPARE_RANKS

OTHER = ResourceName("example.com/gpu")
NAMES = [f"n{number}" for number in range(4)]
CHANGES = st.one_of(
    st.builds(
        lambda name, gpus, other, model, is_cordoned: replace(
            made := node(name, gpus=gpus, model=model, is_cordoned=is_cordoned),
            allocatable={**made.allocatable, OTHER: other},
        ),
        st.sampled_from(NAMES),
        st.sampled_from([0, 4, 8]),
        st.sampled_from([0, 2]),
        st.sampled_from(["", "A100"]),
        st.booleans(),
    ),
    st.sampled_from(NAMES),
    st.tuples(st.sampled_from(NAMES), st.sampled_from([demand(1), demand(4)])),
)


@given(st.lists(CHANGES, max_size=15))
def test_counts_and_classes_are_those_of_a_scan(changes):
    fleet = Fleet()
    fleet.track(GPU)
    fleet.track(OTHER)
    for change in changes:
        if isinstance(change, str):
            fleet.remove(change)
        elif isinstance(change, tuple):
            fleet.take(*change)
        else:
            fleet.set(change)
        want = {}
        for each in fleet.nodes():
            for resource in (GPU, OTHER):
                if amount := each.allocatable.get(resource, 0):
                    group = GpuGroup(each.model, resource, is_packed=False)
                    before = want.get(group, GpuCount())
                    closed = 0 if each.is_open else amount
                    want[group] = GpuCount(before.devices + amount, before.closed + closed)
        assert fleet.gpus.numbers == want
        for resource in (GPU, OTHER):
            there = [each for each in fleet.nodes() if each.allocatable.get(resource, 0)]
            classes = fleet.gpus.view(resource).classes
            assert sorted(fleet.names_of(sum(each.members for each in classes.all))) == sorted(n.name for n in there)
            whole = [n.name for n in there if fleet.free(n.name, resource) == n.allocatable[resource]]
            assert sorted(fleet.names_of(classes.whole)) == sorted(whole)
            for each in there:
                (number,) = classes.numbers(fleet.bit(each.name))
                assert classes.all[number].kind.devices.whole == max(0, fleet.free(each.name, resource))


def test_requests_of_one_size_share_a_ranking_and_tiers_have_their_own():
    fleet = Fleet()
    fleet.track(GPU)
    fleet.set(node("n0"))
    view = fleet.gpus.view(GPU)
    ranking = view.ranking(demand(1), GPU, Tier.GUARANTEED)
    assert view.ranking(demand(1), GPU, Tier.GUARANTEED) is ranking
    assert view.ranking(demand(1), GPU, Tier.PREEMPTIBLE) is not ranking


def busy_fleet(nodes):
    """Nodes that differ in their free GPUs and cpu, so that each is a class of its own."""
    fleet = Fleet()
    fleet.track(GPU)
    for number in range(nodes):
        fleet.set(node(f"n{number:04}", gpus=16, cpu=128_000))
    for size in SIZES:
        fleet.gpus.demand_mix.note(size)
    for number in range(nodes):
        fleet.take(f"n{number:04}", SIZES[number % len(SIZES)])
    return fleet


SIZES = [demand(gpus, cpu=1000 * cpu) for gpus in (1, 2, 3, 4) for cpu in range(1, 13)]


def test_rankings_of_many_sizes_are_dropped_and_made_again(monkeypatch):
    unbounded = busy_fleet(48).gpus.view(GPU)
    want = [list(unbounded.ranking(size, GPU, Tier.GUARANTEED).entries()) for size in SIZES]
    assert unbounded.ranked > 200
    monkeypatch.setattr(gpu_index, "MAX_RANKED", 100)
    view = busy_fleet(48).gpus.view(GPU)
    for _ in range(2):
        for size, entries in zip(SIZES, want, strict=True):
            assert list(view.ranking(size, GPU, Tier.GUARANTEED).entries()) == entries
            assert view.ranked <= 100 + 49


def test_what_is_kept_per_change_is_bounded():
    """Pods come and go without end: classes, their ranks and the states of devices do not add up."""
    fleet, dice, held = busy_fleet(20), random.Random(1), deque()
    sizes = []
    for step in range(3000):
        size, name = dice.choice(SIZES), f"n{dice.randrange(20):04}"
        view = fleet.gpus.view(GPU)
        view.ranking(size, GPU, Tier.GUARANTEED)
        fleet.take(name, size, holder=Uid(str(step)))
        held.append((name, size, Uid(str(step))))
        if len(held) > 40:
            name, size, uid = held.popleft()
            fleet.take(name, size, sign=-1, holder=uid)
        sizes.append(view.ranked)
    live = view.classes.live.bit_count()
    assert live <= 20
    assert view.ranked <= len(SIZES) * (1 + 2 * 20 + 2 * SPARE_RANKS)
    assert max(sizes[2000:]) <= 1.5 * max(sizes[:2000])


def test_a_resource_is_indexed_again_after_too_many_classes(monkeypatch):
    monkeypatch.setattr(gpu_index, "_MAX_CLASSES", 8)
    monkeypatch.setattr(gpu_index, "_MAX_CLASSES_PER_NODE", 0)
    fleet = Fleet()
    fleet.track(GPU)
    fleet.set(node("n0", gpus=16))
    view = fleet.gpus.view(GPU)
    for number in range(8):
        fleet.take("n0", demand(1), holder=Uid(str(number)))
    assert fleet.gpus.view(GPU) is not view
    assert len(fleet.gpus.view(GPU).classes.all) == 1


def test_a_pod_without_gpus_is_placed_by_the_first_resource_of_the_nodes():
    fleet = Fleet()
    fleet.track(GPU)
    assert fleet.gpus.resource_for(demand(0)) is None
    fleet.set(node("n0"))
    assert fleet.gpus.resource_for(demand(0)) == GPU


def test_a_change_of_the_demand_mix_makes_a_new_view():
    fleet = Fleet()
    fleet.track(GPU)
    fleet.set(node("n0"))
    view = fleet.gpus.view(GPU)
    assert fleet.gpus.view(GPU) is view
    for _ in range(200):
        fleet.gpus.demand_mix.note(demand(3))
    assert fleet.gpus.latest(GPU) is view
    assert fleet.gpus.view(GPU) is not view
