"""The watched kinds of DRA (resource.k8s.io), and the PodGroups whose pods share claims or are in one domain."""

from typing import Any

from webhook.cluster.watch.kinds import grouped_kind, split_path
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.dra.claim_spec import ClaimKey
from webhook.core.world.world import World
from webhook.kube.objects import keys
from webhook.kube.pod import dra, dra_devices
from webhook.kube.pod.gangs import gang_of_pod_group
from webhook.kube.world_file.world_file import keep_group


def device_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    """Return the kinds that keep a world's device classes, claims, templates, slices and PodGroups current."""
    return (*_capacity_kinds(world), *_claim_kinds(world))


def _capacity_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    return (
        grouped_kind(
            "deviceclasses",
            keys.DEVICES_API,
            dra_devices.DeviceClassObject,
            apply=lambda found: _set_class(world, found),
            remove=lambda name: world.set_device_class(name, None),
        ),
        grouped_kind(
            "resourceslices",
            keys.DEVICES_API,
            dra_devices.ResourceSlice,
            apply=lambda found: _set_slice(world, found),
            remove=lambda name: world.set_slice(name, None),
        ),
        grouped_kind(
            "devicetaintrules",
            keys.DEVICES_API,
            dra_devices.DeviceTaintRule,
            apply=lambda found: _set_taint_rule(world, found),
            remove=lambda name: world.set_taint_rule(name, None),
            needs_right=False,
        ),
    )


def _claim_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    return (
        grouped_kind(
            "resourceclaims",
            keys.DEVICES_API,
            dra.ResourceClaim,
            apply=lambda found: _set_claim(world, found),
            remove=lambda path: world.set_claim(_key("claim", path), None),
        ),
        grouped_kind(
            "resourceclaimtemplates",
            keys.DEVICES_API,
            dra.ResourceClaimTemplate,
            apply=lambda found: _set_template(world, found),
            remove=lambda path: world.set_claim(_key("template", path), None),
        ),
        grouped_kind(
            "podgroups",
            keys.GROUPS_API,
            dra.PodGroup,
            apply=lambda found: keep_group(found, world),
            remove=lambda path: _remove_group(world, path),
        ),
    )


def _set_class(world: World, found: dra_devices.DeviceClassObject) -> bool:
    world.set_device_class(found.metadata.name, dra_devices.to_class(found), *dra_devices.conditions_of(found))
    return True


def _set_claim(world: World, found: dra.ResourceClaim) -> bool:
    key = dra.claim_key(found.metadata)
    world.set_claim(key, dra.to_claim(found), found.metadata.uid, allocated=dra.allocated_at(found))
    return True


def _set_template(world: World, found: dra.ResourceClaimTemplate) -> bool:
    world.set_claim(dra.template_key(found.metadata), dra.to_template(found))
    return True


def _set_slice(world: World, found: dra_devices.ResourceSlice) -> bool:
    world.set_slice(found.metadata.name, dra_devices.to_slice(found))
    return True


def _set_taint_rule(world: World, found: dra_devices.DeviceTaintRule) -> bool:
    rule = dra_devices.to_taint_rule(found)
    if rule is not None:
        world.set_taint_rule(found.metadata.name, rule)
    return rule is not None


def _remove_group(world: World, path: str) -> None:
    world.set_group(_key("group", path), None)
    gang = gang_of_pod_group(*split_path(path))
    world.group_domains.pop(gang, None)
    if world.minimums.remove_scaler(gang):
        world.on_usage_changed()


def _key(kind: str, path: str) -> ClaimKey:
    return ClaimKey(kind, *split_path(path))
