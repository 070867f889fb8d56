"""ResourceClaims, their templates and DeviceClasses among manifests, in each version that the API server accepts."""

from typing import Any

import msgspec

from webhook.core.world.world import World
from webhook.kube.kinds.model import Json, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod import dra, dra_devices
from webhook.kube.world_file.world_file import KnownClaim, KnownClass, known_claim, known_class, known_template

Devices = KnownClaim | KnownClass


def read_devices(document: Json, *, namespace: str) -> Devices | None:
    """Return a claim, template or class; None for any other object. Its status is not read: no one may write it.

    `namespace` is the default. Raises msgspec.ValidationError if it is malformed.
    """
    kind = document.get("kind")
    if text(document.get("apiVersion")).rpartition("/")[0] != keys.DEVICES_GROUP:
        return None
    written: dict[str, Any] = {key: value for key, value in document.items() if key != "status"}
    if kind == "DeviceClass":
        return known_class(msgspec.convert(written, dra_devices.DeviceClassObject))
    written["metadata"] = {"namespace": namespace, **mapping(document.get("metadata"))}
    if kind == "ResourceClaim":
        return known_claim(msgspec.convert(written, dra.ResourceClaim))
    if kind == "ResourceClaimTemplate":
        return known_template(msgspec.convert(written, dra.ResourceClaimTemplate))
    return None


def add_devices(devices: Devices, world: World) -> None:
    """Add what an object says to a world; a claim that is there stays, since it cannot be changed."""
    if isinstance(devices, KnownClass):
        world.set_device_class(devices.device_class.name, devices.device_class, *devices.conditions)
    elif devices.key not in world.claims:
        world.set_claim(devices.key, devices.spec)
