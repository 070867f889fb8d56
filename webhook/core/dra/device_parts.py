"""Parts of devices that several claims share: consumable capacity (KEP-5075).

A driver may offer a device of 80 GiB to any number of claims, each of which consumes some of its capacities. Such a
part counts as the largest share that it takes of one of them, exactly: together the parts of a device count no less
than what is taken of any of its capacities.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

Amounts = Mapping[str, Fraction]
"""Capacities by name."""


class DevicePart(NamedTuple):
    """What a claim consumes of a device: the device by pool (`driver/pool`) and name, and amounts of its capacities."""

    pool: str
    device: str
    consumed: tuple[tuple[str, Fraction], ...]


class SizedDevice(NamedTuple):
    """A device that claims may share, and the size of its capacities."""

    name: str
    capacities: tuple[tuple[str, Fraction], ...]


class DeviceSizes:
    """The sizes of devices that claims may share, by the slices that offer them."""

    def __init__(self) -> None:
        self._slices: dict[str, tuple[str, tuple[SizedDevice, ...]]] = {}
        self._sizes: dict[tuple[str, str], dict[str, Amounts]] = {}

    def set(self, slice_name: str, pool: str, devices: Iterable[SizedDevice]) -> bool:
        """Set the devices of a slice, none if it is gone; return whether a size may have changed."""
        now = pool, tuple(devices)
        before = self._slices.pop(slice_name, (pool, ()))
        for device in before[1]:
            of_device = self._sizes[before[0], device.name]
            del of_device[slice_name]
            if not of_device:
                del self._sizes[before[0], device.name]
        if now[1]:
            self._slices[slice_name] = now
        for device in now[1]:
            self._sizes.setdefault((pool, device.name), {})[slice_name] = dict(device.capacities)
        return before != now and bool(before[1] or now[1])

    def share_of(self, part: DevicePart) -> Fraction:
        """Return how much of its device a part is: all of it where that is not known.

        While a driver publishes a pool again two slices may have a device: the larger share counts.
        """
        sizes = self._sizes.get((part.pool, part.device), {}).values()
        return max((_share(part, size) for size in sizes), default=Fraction(1))


def _share(part: DevicePart, size: Amounts) -> Fraction:
    consumed = dict(part.consumed)
    if not consumed or any(amount <= 0 or size.get(name, 0) <= 0 for name, amount in part.consumed):
        return Fraction(1)
    return min(Fraction(1), max(amount / size[name] for name, amount in consumed.items()))
