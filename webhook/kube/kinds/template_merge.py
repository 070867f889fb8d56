"""Merging of pod specs, for the fields on which demand and placement depend."""

from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.model import Json, listed, mapping, text

_BY_NAME = ("containers", "initContainers")
_APPENDED = ("tolerations", "volumes")


def merge_spec(base: Json, patch: Json, budget: Budget) -> Json:
    """Return `base` merged with `patch`: containers by name, mappings by key, tolerations and volumes appended."""
    budget.step(len(base) + len(patch))
    made = dict(base)
    for key, value in patch.items():
        if key in _BY_NAME and isinstance(value, list):
            made[key] = _containers(base.get(key), value, budget)
        elif key in _APPENDED and isinstance(value, list):
            before = listed(base.get(key))
            budget.step(len(before) + len(value))
            made[key] = [*before, *value]
        elif isinstance(value, dict):
            made[key] = _merged(mapping(base.get(key)), value, budget)
        else:
            made[key] = value
    return made


def merge_container(base: Json, patch: Json, budget: Budget) -> Json:
    """Return `base` merged with `patch`: requests and limits by resource, other fields replaced."""
    before, after = mapping(base.get("resources")), mapping(patch.get("resources"))
    resources = {
        side: _merged(mapping(before.get(side)), mapping(after.get(side)), budget)
        for side in ("requests", "limits")
        if side in before or side in after
    }
    budget.step(len(before) + len(after))
    return {**_merged(base, patch, budget), "resources": {**before, **after, **resources}}


def _merged(base: Json, patch: Json, budget: Budget) -> Json:
    budget.step(len(base) + len(patch))
    return {**base, **patch}


def _containers(base: object, patch: list[object], budget: Budget) -> list[Json]:
    made = [mapping(each) for each in listed(base)]
    budget.step(len(made) + len(patch))
    places: dict[str, int] = {}
    for index, known in enumerate(made):
        places.setdefault(text(known.get("name")), index)
    for each in patch:
        container = mapping(each)
        name = text(container.get("name"))
        at = places.get(name)
        if at is None:
            places[name] = len(made)
            made.append(container)
        else:
            made[at] = merge_container(made[at], container, budget)
    return made
