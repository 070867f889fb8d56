"""Merging of pod specs, for the fields on which demand and placement depend."""

from webhook.kube.workloads.model import Json, listed, mapping, text

_BY_NAME = ("containers", "initContainers")
_APPENDED = ("tolerations", "volumes")


def merge_spec(base: Json, patch: Json) -> Json:
    """Return `base` merged with `patch`: containers by name, mappings by key, tolerations and volumes appended."""
    made = dict(base)
    for key, value in patch.items():
        if key in _BY_NAME and isinstance(value, list):
            made[key] = _containers(base.get(key), value)
        elif key in _APPENDED and isinstance(value, list):
            made[key] = [*listed(base.get(key)), *value]
        elif isinstance(value, dict):
            made[key] = {**mapping(base.get(key)), **value}
        else:
            made[key] = value
    return made


def merge_container(base: Json, patch: Json) -> Json:
    """Return `base` merged with `patch`: requests and limits by resource, other fields replaced."""
    before, after = mapping(base.get("resources")), mapping(patch.get("resources"))
    resources = {
        side: {**mapping(before.get(side)), **mapping(after.get(side))}
        for side in ("requests", "limits")
        if side in before or side in after
    }
    return {**base, **patch, "resources": {**before, **after, **resources}}


def _containers(base: object, patch: list[object]) -> list[Json]:
    made = [mapping(each) for each in listed(base)]
    for each in patch:
        container = mapping(each)
        name = text(container.get("name"))
        at = next((index for index, known in enumerate(made) if known.get("name") == name), None)
        if at is None:
            made.append(container)
        else:
            made[at] = merge_container(made[at], container)
    return made
