"""Requests of gangs for one domain: the nodes with one value of a node label, such as one rack.

Policy lists levels of domains from large to small (zone, block, rack, host). A domain of a level is identified by the
labels of the larger levels too: rack 1 of zone a is not rack 1 of zone b.
"""

from typing import Final, NamedTuple

from webhook.core.model.selector import Requirement

MAX_LEVELS: Final = 8
"""Most levels in a policy: each costs a pass over the nodes for a gang."""


class DomainRequest(NamedTuple):
    """What a gang asks for: one domain of the label `key`. Unless `is_required`, larger ones do as well.

    Without a key it asks for none, whatever levels policy lists.
    """

    key: str
    is_required: bool = False


ANYWHERE: Final = DomainRequest("")


class DomainLevel(NamedTuple):
    """One level of domains: the key of its label, and those of the larger levels that it lies in, the largest first."""

    key: str
    above: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that tell its domains apart, its own first."""
        return (self.key, *self.above)


class DomainPlace(NamedTuple):
    """The domain that the members of a gang are placed in, and why. `requirements` are what its nodes meet."""

    name: str
    requirements: tuple[Requirement, ...]
    is_required: bool = False
    why: str = ""


def levels_to_try(request: DomainRequest | None, policy_levels: tuple[str, ...]) -> tuple[DomainLevel, ...]:
    """Return the levels in which a gang may be placed, the smallest first.

    Policy's smaller levels come before the one that is asked for: a gang in one rack is in one zone. Larger ones follow
    if the request is a preference. Without a request every level of policy is preferred.
    """
    every = all_levels(policy_levels)
    if request is None:
        return every[::-1]
    position = _position(request, every)
    smaller = () if position is None else every[:position:-1]
    return smaller + asked_levels(request, policy_levels)


def asked_levels(request: DomainRequest | None, policy_levels: tuple[str, ...]) -> tuple[DomainLevel, ...]:
    """Return the level that is asked for and, for a preference, the larger ones after it; none without a request.

    Where others are evicted for the room, no smaller domain is sought than the one that is asked for.
    """
    if request is None or not request.key:
        return ()
    every = all_levels(policy_levels)
    position = _position(request, every)
    if position is None:
        return (DomainLevel(request.key),)
    return every[position : position + 1] if request.is_required else every[position::-1]


def all_levels(policy_levels: tuple[str, ...]) -> tuple[DomainLevel, ...]:
    """Return the levels of a policy, the largest first."""
    return tuple([DomainLevel(key, policy_levels[:number]) for number, key in enumerate(policy_levels)])


def _position(request: DomainRequest, every: tuple[DomainLevel, ...]) -> int | None:
    return next((number for number, level in enumerate(every) if level.key == request.key), None)
