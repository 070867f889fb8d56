"""The watched kinds of DRA (resource.k8s.io), and the PodGroups whose pods share claims."""

from typing import Any

from webhook.cluster.watch.kinds import optional_kind
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.dra.dra_claims import ClaimKey
from webhook.core.model.names import Namespace
from webhook.core.world.world import World
from webhook.kube.objects import keys
from webhook.kube.pod import dra


def device_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    """Return the kinds that keep a world's device classes, claims, templates, slices and PodGroups current."""
    return (*_capacity_kinds(world), *_claim_kinds(world))


def _capacity_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    return (
        optional_kind(
            "deviceclasses",
            keys.DEVICES_API,
            dra.DeviceClassObject,
            apply=lambda found: _set_class(world, found),
            remove=lambda name: world.set_device_class(name, None),
        ),
        optional_kind(
            "resourceslices",
            keys.DEVICES_API,
            dra.ResourceSlice,
            apply=lambda found: _set_slice(world, found),
            remove=lambda name: world.set_slice(name, None),
        ),
    )


def _claim_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    return (
        optional_kind(
            "resourceclaims",
            keys.DEVICES_API,
            dra.ResourceClaim,
            apply=lambda found: _set_claim(world, found),
            remove=lambda path: world.set_claim(_key("claim", path), None),
        ),
        optional_kind(
            "resourceclaimtemplates",
            keys.DEVICES_API,
            dra.ResourceClaimTemplate,
            apply=lambda found: _set_template(world, found),
            remove=lambda path: world.set_claim(_key("template", path), None),
        ),
        optional_kind(
            "podgroups",
            keys.GROUPS_API,
            dra.PodGroup,
            apply=lambda found: _set_group(world, found),
            remove=lambda path: world.set_group(_key("group", path), None),
        ),
    )


def _set_class(world: World, found: dra.DeviceClassObject) -> bool:
    world.set_device_class(found.metadata.name, dra.to_class(found), *dra.conditions_of(found))
    return True


def _set_claim(world: World, found: dra.ResourceClaim) -> bool:
    spec = dra.to_claim(found)
    if spec is not None:
        world.set_claim(dra.claim_key(found.metadata), spec, found.metadata.uid)
    return spec is not None


def _set_template(world: World, found: dra.ResourceClaimTemplate) -> bool:
    world.set_claim(dra.template_key(found.metadata), dra.to_template(found))
    return True


def _set_slice(world: World, found: dra.ResourceSlice) -> bool:
    devices = dra.to_slice(found)
    if devices is not None:
        world.set_slice(found.metadata.name, devices)
    return devices is not None


def _set_group(world: World, found: dra.PodGroup) -> bool:
    entries = dra.to_group(found)
    if entries:
        world.set_group(dra.group_key(found.metadata), entries)
    return bool(entries)


def _key(kind: str, path: str) -> ClaimKey:
    namespace, _, name = path.partition("/")
    return ClaimKey(kind, Namespace(namespace), name)
