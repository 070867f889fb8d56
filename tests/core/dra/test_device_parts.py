"""Parts of devices that several claims share, and what they count."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.claims import GPU_CLASS, charged, resident, resolve_for, spec, world
from webhook.core.devices.claim_users import ClaimKey, ClassCount, DeviceRequest
from webhook.core.devices.slices import DevicePart, DeviceSizes, SizedDevice, Slice
from webhook.core.model.demand import ClaimRef

POOL = "gpu.nvidia.com/n0"
SIZED = SizedDevice("gpu-0", (("cores", Fraction(100)), ("memory", Fraction(80))))


def part(device="gpu-0", pool=POOL, **consumed):
    return DevicePart(pool, device, tuple(sorted((name, Fraction(amount)) for name, amount in consumed.items())))


def shared(*parts, number=None):
    """An allocated claim with these parts of devices."""
    return (DeviceRequest((ClassCount(GPU_CLASS.name, number or len(parts), "gpu.nvidia.com", parts),)),)


def offering(*devices, generation=1):
    return Slice("n0", POOL, generation, (), devices)


def sizes_of(**slices):
    sizes = DeviceSizes()
    for name, devices in slices.items():
        sizes.set(name, POOL, devices)
    return sizes


@pytest.mark.parametrize(
    ("consumed", "want"),
    [
        (part(memory=10), Fraction(1, 8)),
        (part(memory=10, cores=50), Fraction(1, 2)),
        (part(memory=90), 1),
        (part(), 1),
        (part(memory=0), 1),
        (part(memory=10, bandwidth=1), 1),
        (part(device="gpu-1", memory=10), 1),
        (part(pool="gpu.nvidia.com/n1", memory=10), 1),
    ],
    ids=[
        "one capacity",
        "the larger share",
        "more than there is",
        "nothing said",
        "none",
        "of unknown size",
        "another device",
        "another pool",
    ],
)
def test_a_part_counts_its_largest_share_and_all_of_the_device_where_that_is_not_known(consumed, want):
    assert sizes_of(s=(SIZED,)).share_of(consumed) == want


def test_a_device_in_two_slices_counts_by_the_smaller_one():
    small = SizedDevice("gpu-0", (("memory", Fraction(40)),))
    sizes = sizes_of(old=(SIZED,), new=(small,))
    assert sizes.share_of(part(memory=10)) == Fraction(1, 4)
    assert sizes.set("new", POOL, ())
    assert sizes.share_of(part(memory=10)) == Fraction(1, 8)
    assert not sizes.set("old", POOL, (SIZED,))
    assert not sizes.set("another", POOL, ())
    assert sizes.set("old", POOL, ())
    assert sizes.share_of(part(memory=10)) == 1


@given(st.lists(st.integers(1, 80), min_size=1, max_size=8))
def test_parts_together_count_no_less_than_what_they_take_of_a_device(amounts):
    place = world()
    place.set_slice("s", offering(SIZED))
    for number, amount in enumerate(amounts):
        place.set_claim(ClaimKey("claim", "team-a", f"c{number}"), shared(part(memory=amount)))
        place.set_pod(resident(f"u{number}", ClaimRef(claim=f"c{number}"), node="n0"))
    assert place.usage("team-a").total == Fraction(sum(amounts), 80) * make.gpus(1)


def test_a_claim_counts_whole_devices_until_it_is_allocated_then_its_parts():
    place, key, refs = world(), ClaimKey("claim", "team-a", "c"), (ClaimRef(claim="c"),)
    place.set_slice("s", offering(SIZED))
    place.set_claim(key, spec(2))
    place.set_pod(resident("a", *refs, node="n0"))
    assert charged(place) == 2
    place.set_claim(key, shared(part(memory=10), number=2))
    assert charged(place) == Fraction(9, 8), "one part, and one whole device"
    place.set_slice("s", None)
    assert charged(place) == 2, "of what size is not known any more"
    place.set_slice("s", offering(SIZED))
    assert charged(place) == Fraction(9, 8)


def test_the_room_of_parts_is_left_to_kube_scheduler():
    place, key = world(), ClaimKey("claim", "team-a", "c")
    place.set_claim(key, (DeviceRequest((ClassCount(GPU_CLASS.name, 1, may_be_part=True),)),))
    wanted = resolve_for(place, ClaimRef(claim="c")).demand
    assert (wanted.gpus, dict(wanted.requests).get(GPU_CLASS.implicit_resource)) == (make.gpus(1), None)
    place.set_claim(key, shared(part(memory=10)))
    assert GPU_CLASS.implicit_resource not in dict(resolve_for(place, ClaimRef(claim="c")).demand.requests)
