"""The pod of one Argo template: its containers, with what the workflow says of all pods, and parameters filled in."""

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.kube.workloads.model import Json, listed, mapping, text

_OF_THE_POD: Final = ("nodeSelector", "affinity", "tolerations", "schedulerName", "priorityClassName")
_MAIN: Final = "main"
_PARAMETER: Final = re.compile(r"\{\{\s*workflow\.parameters\.([A-Za-z0-9_-]+)\s*\}\}")
_OPEN: Final = "{{"
_RESOURCE: Final = "resource"  # what both `resources` and `resourceClaims` begin with
_MOST: Final = 1_000_000
_DIGITS: Final = 7


def has_pod(template: Json) -> bool:
    """Tell whether a template runs a pod with containers that its user wrote."""
    return any(isinstance(template.get(key), Mapping) for key in ("container", "script", "containerSet"))


def pod_of(template: Json, spec: Json, parameters: Mapping[str, str]) -> Json | str:
    """Give the pod template of an Argo template in a workflow's spec; or say what nobody knows of it."""
    if any(_RESOURCE in text(each.get("podSpecPatch")) for each in (template, spec)):
        return "podSpecPatch changes what its pods ask for"
    made: dict[str, Any] = {"containers": _containers(template)}
    if init := listed(template.get("initContainers")):
        made["initContainers"] = [_bare(mapping(each)) for each in init]
    if not _asks_for_devices(made):
        return {"spec": {"containers": [{"name": _MAIN}]}}
    for key in _OF_THE_POD:
        if value := template.get(key) or spec.get(key):
            made[key] = value
    if not made.get("priorityClassName") and (name := text(spec.get("podPriorityClassName"))):
        made["priorityClassName"] = name
    made = {key: filled(value, parameters) for key, value in made.items()}
    if (what := _still_open(made)) is not None:
        return f"{what} is known only when it runs"
    common, own = mapping(spec.get("podMetadata")), mapping(template.get("metadata"))
    return {
        "metadata": {
            key: filled({**mapping(common.get(key)), **mapping(own.get(key))}, parameters)
            for key in ("labels", "annotations")
        },
        "spec": made,
    }


def devices_of(pod: Json) -> int:
    """Count the devices of any kind that a pod template asks for, roughly: to compare templates of one workflow."""
    spec = mapping(pod.get("spec"))
    found = 0
    for container in (*listed(spec.get("containers")), *listed(spec.get("initContainers"))):
        found += sum(_whole(amount) for name, amount in _asked(container).items() if "/" in str(name))
    return min(found, _MOST)


def _asked(container: object) -> Json:
    resources = mapping(mapping(container).get("resources"))
    return {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}


def _asks_for_devices(spec: Json) -> bool:
    """Tell whether a pod names an extended resource, or a resource or claim that may turn out to be one."""
    containers = (*listed(spec.get("containers")), *listed(spec.get("initContainers")))
    names = (str(name) for container in containers for name in _asked(container))
    claims = any(mapping(mapping(container).get("resources")).get("claims") for container in containers)
    return claims or any("/" in name or _OPEN in name for name in names)


def _whole(amount: object) -> int:
    written = str(amount)
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= _DIGITS else 1


def _containers(template: Json) -> list[Json]:
    """List the containers of a pod: the main one, or all of a set, and those beside."""
    several = listed(mapping(template.get("containerSet")).get("containers"))
    main = mapping(template.get("container")) or mapping(template.get("script"))
    found = [mapping(each) for each in several] or [{**main, "name": text(main.get("name")) or _MAIN}]
    return [_bare(each) for each in (*found, *map(mapping, listed(template.get("sidecars"))))]


def _bare(container: Json) -> Json:
    """Keep of a container what it takes: commands and scripts are full of parameters."""
    return {key: container[key] for key in ("name", "resources", "restartPolicy") if key in container}


def filled(value: Any, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON in, the same JSON out
    """Fill in the workflow's own parameters, as far as they have values."""
    if isinstance(value, str):
        return _PARAMETER.sub(lambda found: parameters.get(found[1], found[0]), value) if _OPEN in value else value
    if isinstance(value, Mapping):
        return {key: filled(item, parameters) for key, item in value.items()}
    return [filled(item, parameters) for item in value] if isinstance(value, list) else value


def _still_open(value: object) -> str | None:
    """Find a parameter that has no value yet."""
    if isinstance(value, str):
        return value if _OPEN in value else None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((found for item in items if (found := _still_open(item)) is not None), None)
