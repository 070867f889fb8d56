"""Objects among manifests that claim devices.

Objects among manifests that say what claims request, in each version: claims, templates, classes, who shares them.

A ComputeDomain of NVIDIA's driver names the template that its controller makes, of which each claim is an IMEX
channel: no GPU.
"""

from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.devices.claim_users import ClaimKey, GroupEntry
from webhook.core.model.amounts import Namespace
from webhook.core.world.world import World
from webhook.kube.kinds.model import Json, dig, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod import devices as dra
from webhook.kube.pod import slices
from webhook.kube.world_file.world_file import KnownClaim, KnownClass, known_claim, known_class, known_template

_TEMPLATE_OF_DOMAIN: Final = "spec.channel.resourceClaimTemplate.name"


class KnownGroup(NamedTuple):
    """A PodGroup, and the claims that its pods share."""

    key: ClaimKey
    entries: frozenset[GroupEntry]


Devices = KnownClaim | KnownClass | KnownGroup


def read_devices(document: Json, *, namespace: str) -> Devices | None:
    """Return what an object says of claims; None for any other object. Its status is not read: no one may write it.

    `namespace` is the default. Raises msgspec.ValidationError if it is malformed.
    """
    written: dict[str, Any] = {key: value for key, value in document.items() if key != "status"}
    written["metadata"] = {"namespace": namespace, **mapping(document.get("metadata"))}
    match text(document.get("apiVersion")).rpartition("/")[0], document.get("kind"):
        case keys.DEVICES_GROUP, "DeviceClass":
            return known_class(msgspec.convert(written, slices.DeviceClassObject))
        case keys.DEVICES_GROUP, "ResourceClaim":
            return known_claim(msgspec.convert(written, dra.ResourceClaim))
        case keys.DEVICES_GROUP, "ResourceClaimTemplate":
            return known_template(msgspec.convert(written, dra.ResourceClaimTemplate))
        case keys.GROUPS_GROUP, "PodGroup":
            group = msgspec.convert(written, dra.PodGroup)
            return KnownGroup(dra.group_key(group.metadata), dra.to_group(group))
        case "resource.nvidia.com", "ComputeDomain" if name := text(dig(written, _TEMPLATE_OF_DOMAIN)):
            home = text(written["metadata"].get("namespace")) or namespace
            return KnownClaim(ClaimKey("template", Namespace(home), name), ())
    return None


def add_devices(devices: Devices, world: World) -> None:
    """Add what an object says to a world; a claim that is there stays, since it cannot be changed."""
    if isinstance(devices, KnownClass):
        world.set_device_class(devices.device_class.name, devices.device_class, *devices.conditions)
    elif isinstance(devices, KnownGroup):
        world.set_group(devices.key, devices.entries)
    elif devices.key not in world.claims:
        world.set_claim(devices.key, devices.spec)
