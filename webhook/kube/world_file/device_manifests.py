"""ResourceClaims, their templates and DeviceClasses among manifests, in each version that the API server accepts."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.core.world.world import World
from webhook.kube.kinds.model import Json, listed, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod import dra, dra_devices
from webhook.kube.world_file.world_file import KnownClaim, KnownClass, known_claim, known_class, known_template

_GROUP: Final = keys.DEVICES_API.partition("/")[0]
_FLAT: Final = "v1beta1"
"""The version in which a request's own fields are those of `exactly`."""


Devices = KnownClaim | KnownClass


def read_devices(document: Json, *, namespace: str) -> Devices | None:
    """Return a claim, template or class; None for any other object. Its status is not read: no one may write it.

    `namespace` is the default. Raises msgspec.ValidationError if it is malformed.
    """
    group, _, version = text(document.get("apiVersion")).rpartition("/")
    kind = document.get("kind")
    if group != _GROUP:
        return None
    written: dict[str, Any] = {key: value for key, value in document.items() if key != "status"}
    if kind == "DeviceClass":
        return known_class(msgspec.convert(written, dra_devices.DeviceClassObject))
    written["metadata"] = {"namespace": namespace, **mapping(document.get("metadata"))}
    spec = mapping(document.get("spec"))
    if kind == "ResourceClaim":
        return known_claim(msgspec.convert({**written, "spec": _as_v1(spec, version)}, dra.ResourceClaim))
    if kind == "ResourceClaimTemplate":
        written["spec"] = {**spec, "spec": _as_v1(mapping(spec.get("spec")), version)}
        return known_template(msgspec.convert(written, dra.ResourceClaimTemplate))
    return None


def add_devices(devices: Devices, world: World) -> None:
    """Add what an object says to a world; a claim that is there stays, since it cannot be changed."""
    if isinstance(devices, KnownClass):
        world.set_device_class(devices.device_class.name, devices.device_class, *devices.conditions)
    elif devices.key not in world.claims:
        world.set_claim(devices.key, devices.spec)


def _as_v1(spec: Json, version: str) -> Json:
    if version != _FLAT:
        return spec
    devices = mapping(spec.get("devices"))
    requests = [_request_as_v1(mapping(each)) for each in listed(devices.get("requests"))]
    return {**spec, "devices": {**devices, "requests": requests}}


def _request_as_v1(request: Json) -> Mapping[str, Any]:
    if "firstAvailable" in request or "exactly" in request:
        return request
    return {"name": request.get("name", ""), "exactly": {key: request[key] for key in request if key != "name"}}
