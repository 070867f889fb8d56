"""The places that a held node keeps for pods to come, as the evictor writes them into its annotation of the hold."""

from collections.abc import Iterable
from typing import Final

import msgspec

from webhook.core.model.kept_place import NO_POD, KeptPlace
from webhook.core.model.names import ResourceName, TeamName, Uid
from webhook.kube.objects import keys, objects


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place in the annotation."""

    key: str
    name: str
    team: TeamName
    requests: dict[ResourceName, int]
    replaces: Uid = NO_POD


class _Note(msgspec.Struct, frozen=True):
    places: tuple[Place, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Note)


def kept_places(metadata: objects.ObjectMeta) -> tuple[KeptPlace, ...]:
    """Return the places that a node keeps; none where it has no hold, or the annotation has another format."""
    text = (metadata.annotations or {}).get(keys.HOLD)
    if text is None:
        return ()
    try:
        return to_places(_decoder.decode(text).places)
    except msgspec.MsgspecError:
        return ()


def to_places(written: Iterable[Place]) -> tuple[KeptPlace, ...]:
    """Return places from what is written of them."""
    return tuple(
        KeptPlace(each.key, each.name, each.team, tuple(each.requests.items()), each.replaces) for each in written
    )


def to_written(places: Iterable[KeptPlace]) -> tuple[Place, ...]:
    """Return what is written of places."""
    return tuple(Place(each.key, each.name, each.team, dict(each.requests), each.replaces) for each in places)
