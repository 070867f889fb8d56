"""Fallbacks of a pod's best node: where it may go if that node is lost or fills up before the pod is bound.

Nodes of one rack or of one upgrade often follow one another by name, and so by slot. The next best nodes usually do as
well, and they are the first choices of the pods that come next. So only the first fallback is the next best node; the
others are far away, and far from those of other pods.
"""

from typing import Final

from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.slot_index import lowest_slot

_NEAR: Final = 16
"""Slots on either side of the first choice that may be lost together with it: a rack."""

_STEPS: Final = (1, 7, 13)
"""What a step of one slot between two first choices is between their fallbacks: pods of one lost node go together, pods
of neighboring nodes do not meet again."""


def with_distant(
    fleet: Fleet, demand: Demand, among: int, nodes: tuple[NodeName, ...], *, count: int
) -> tuple[NodeName, ...]:
    """Add distant nodes with room, of these slots, to the best nodes until there are `count` nodes."""
    if not nodes or len(nodes) >= count:
        return nodes
    room = fleet.with_room(demand, among & fleet.open_bits)
    for name in nodes:
        room &= ~fleet.bit(name)
    first = fleet.bit(nodes[0]).bit_length() - 1
    return nodes + fleet.names(distant_slots(room, first, count - len(nodes)))


def distant_slots(room: int, first: int, count: int) -> list[int]:
    """Return up to `count` of these slots: not near the first choice while there are others, and spread by it."""
    start = max(0, first - _NEAR)
    near = ((1 << first + _NEAR + 1 - start) - 1) << start
    far = room ^ (room & near)  # `room & ~near` takes longer
    span = room.bit_length()
    found: list[int] = []
    for number in range(count):
        bits = far or room
        if not bits:
            break
        step = _STEPS[number % len(_STEPS)]
        after = (first * step + (number + 1) * span // (count + 1)) % span
        rest = bits >> after
        slot = after + lowest_slot(rest) if rest else lowest_slot(bits)
        found.append(slot)
        room ^= 1 << slot
        far &= room
    return found
