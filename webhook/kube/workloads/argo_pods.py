"""The pod of one Argo template: its containers, the workflow's settings for all pods, and parameter values."""

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.kube.workloads.model import Json, listed, mapping, text

_POD_FIELDS: Final = ("nodeSelector", "affinity", "tolerations", "schedulerName", "priorityClassName")
_MAIN: Final = "main"
_PARAMETER: Final = re.compile(r"\{\{\s*workflow\.parameters\.([A-Za-z0-9_-]+)\s*\}\}")
_PARAMETER_START: Final = "{{"
_RESOURCE: Final = "resource"  # what both `resources` and `resourceClaims` begin with
_MAX_COUNT: Final = 1_000_000
_MAX_DIGITS: Final = 7


def has_pod(template: Json) -> bool:
    """Whether a template runs a pod with containers that its user wrote."""
    return any(isinstance(template.get(key), Mapping) for key in ("container", "script", "containerSet"))


def pod_of(template: Json, spec: Json, parameters: Mapping[str, str]) -> Json | str:
    """Return the pod template of an Argo template in a workflow's spec, or a message why it is unknown."""
    if any(_RESOURCE in text(each.get("podSpecPatch")) for each in (template, spec)):
        return "podSpecPatch changes what its pods request"
    made: dict[str, Any] = {"containers": _containers(template)}
    if init := listed(template.get("initContainers")):
        made["initContainers"] = [_reduced(mapping(each)) for each in init]
    if not _asks_for_devices(made):
        return {"spec": {"containers": [{"name": _MAIN}]}}
    for key in _POD_FIELDS:
        if value := template.get(key) or spec.get(key):
            made[key] = value
    if not made.get("priorityClassName") and (name := text(spec.get("podPriorityClassName"))):
        made["priorityClassName"] = name
    made = {key: with_parameters(value, parameters) for key, value in made.items()}
    if (parameter := _first_unset(made)) is not None:
        return f"{parameter} is known only when it runs"
    common, own = mapping(spec.get("podMetadata")), mapping(template.get("metadata"))
    return {
        "metadata": {
            key: with_parameters({**mapping(common.get(key)), **mapping(own.get(key))}, parameters)
            for key in ("labels", "annotations")
        },
        "spec": made,
    }


def devices_of(pod: Json) -> int:
    """Return the approximate number of devices of any kind in a pod template, to compare templates of one workflow."""
    spec = mapping(pod.get("spec"))
    found = 0
    for container in (*listed(spec.get("containers")), *listed(spec.get("initContainers"))):
        found += sum(_whole(amount) for name, amount in _requested(container).items() if "/" in str(name))
    return min(found, _MAX_COUNT)


def _requested(container: object) -> Json:
    resources = mapping(mapping(container).get("resources"))
    return {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}


def _asks_for_devices(spec: Json) -> bool:
    """Whether a pod requests an extended resource or a claim, or a resource whose name is a parameter."""
    containers = (*listed(spec.get("containers")), *listed(spec.get("initContainers")))
    names = (str(name) for container in containers for name in _requested(container))
    claims = any(mapping(mapping(container).get("resources")).get("claims") for container in containers)
    return claims or any("/" in name or _PARAMETER_START in name for name in names)


def _whole(amount: object) -> int:
    written = str(amount)
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= _MAX_DIGITS else 1


def _containers(template: Json) -> list[Json]:
    """Return the containers of a pod: the main one, or all of a container set, and the sidecars."""
    several = listed(mapping(template.get("containerSet")).get("containers"))
    main = mapping(template.get("container")) or mapping(template.get("script"))
    found = [mapping(each) for each in several] or [{**main, "name": text(main.get("name")) or _MAIN}]
    return [_reduced(each) for each in (*found, *map(mapping, listed(template.get("sidecars"))))]


def _reduced(container: Json) -> Json:
    """Return only a container's name, resources and restart policy: commands and scripts may contain parameters."""
    return {key: container[key] for key in ("name", "resources", "restartPolicy") if key in container}


def with_parameters(value: Any, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON in, the same JSON out
    """Return a value with the workflow's parameters replaced, if they have values."""
    if isinstance(value, str):
        return (
            _PARAMETER.sub(lambda found: parameters.get(found[1], found[0]), value)
            if _PARAMETER_START in value
            else value
        )
    if isinstance(value, Mapping):
        return {key: with_parameters(item, parameters) for key, item in value.items()}
    return [with_parameters(item, parameters) for item in value] if isinstance(value, list) else value


def _first_unset(value: object) -> str | None:
    """Return the first text with a parameter that has no value."""
    if isinstance(value, str):
        return value if _PARAMETER_START in value else None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((found for item in items if (found := _first_unset(item)) is not None), None)
