"""Requests for GPUs in templates, and how templates are merged.

Where an object asks for GPUs in a field that no reader knows, by keys and values (the rule: docs/tasks/workloads.md).

A field that merely mentions GPUs is none: labels, selectors, tolerations, quotas, metrics, images and free text.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from webhook.core.model.gpu_shares import looks_like_gpu
from webhook.kube.kinds.model import Budget, Json, listed, mapping, scalar, text

_ACCELERATOR: Final = re.compile(r"accelerator", re.IGNORECASE)
_RESOURCE: Final = re.compile(r"(?:(?:requests|limits)\.)?[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}/[\w.-]{1,63}")
"""A whole text that can be the name of an extended resource: nvidia.com/GA102GL_A10."""
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_LONGEST_NAME: Final = 256
_AMOUNT: Final = re.compile(r"""/(?<=[\w.-]{3}/)([\w.-]{1,63}+)["']?[ \t]{0,8}+[:=][ \t]{0,8}+["']?([1-9]|\{\{|\$)""")
"""What follows the domain of a resource in a text that is a manifest itself: /gpu: 8.

A search that began at the domain would look at each character of a long text a hundred times.
"""
_DOMAIN: Final = re.compile(r"[\w.-]{3,63}$")
_LONGEST_DOMAIN: Final = 63
_NOTHING: Final = re.compile(r"0*(\.0*)?|false|no|none|off|disabled", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_QUANTITY: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?([KMGT]i?)?")
_WORDS: Final = frozenset({"gpu", "gpus"})
_NAMES: Final = frozenset({"name", "resource", "resourceName", "type"})
_MACHINES: Final = re.compile(r"(instance|machine|node|vm|resource)_?(type|size|class|profile|shape)s?", re.IGNORECASE)
_GPU_MACHINE: Final = re.compile(
    r"(?i)Standard_N[CDGV]|(p[2-6][a-z]*|g[3-7][a-z]*|gr6[a-z]*|trn[12][a-z]*|inf[12]|dl[12][a-z]*)\."
    r"|(a[234]|g[24]|ct[3-6][a-z]*)-|(BM|VM)\.GPU"
)
"""Machines with GPUs of Azure, AWS, Google and Oracle."""
_ELSEWHERE: Final = frozenset(
    {
        *("labels", "annotations", "matchLabels", "matchExpressions", "labelSelector", "selector", "podSelector"),
        *("nodeSelector", "nodeSelectorTerms", "nodeLabels", "tolerations", "taints", "affinity", "podAffinity"),
        *("status", "hard", "resourceQuotaSpec", "quota", "quotas", "metrics", "alerts", "managedFields"),
        *("apiVersion", "kind", "image", "images", "repository", "url", "urls", "env", "envs", "args", "command"),
    }
)
"""Keys below which only texts with amounts count."""
_ABOUT: Final = re.compile(r"monitor|metric|dashboard|alert|exporter|utili[sz]ation|threshold|percent", re.IGNORECASE)
"""Words of keys that are about the use of GPUs."""
_NUMBERS: Final = ("value", "amount", "count", "quantity")
_MOST_AMOUNTS: Final = 100
"""Amounts of one text that are looked at."""
_CONTAINERS: Final = frozenset({"containers", "initContainers", "sidecars", "steps"})
_TEXT_BYTES: Final = 32
"""Bytes of a text that are searched in a step."""
_VALUE_STEPS: Final = 3
_PLACE_STEPS: Final = 8
"""The cost of looking at one value, besides reading it and the length of its text, and of one mapping or list."""


class _Place(NamedTuple):
    """A mapping or list in an object, below another one.

    `name` is the key of it, or of the list that it is an element of. `counts`: fields below it ask for what they name.
    `is_gpu`: a key above it names GPUs.
    """

    value: Json | list[object]
    above: "_Place | None" = None
    key: str = ""
    name: str = ""
    counts: bool = True
    is_gpu: bool = False

    def path(self, last: object = None) -> str:
        """Return the path of it, or of one of its values."""
        found = [] if last is None else [f"[{last}]" if isinstance(self.value, list) else f".{last}"]
        place: _Place | None = self
        while place is not None:
            found.append(place.key)
            place = place.above
        return "".join(reversed(found)).lstrip(".")


class Found(NamedTuple):
    """The paths of the first field that asks for GPUs or other devices, and of the first containers; "" for none."""

    devices: str = ""
    containers: str = ""


def unread_request(document: Json, budget: Budget) -> str:
    """Return where an object of a known kind, whose pods request no GPU, asks for some; "" if it does not.

    Its containers have been read. Raises BudgetSpentError.
    """
    return requests_in(document, budget, left_out=_CONTAINERS).devices


def requests_in(document: Json, budget: Budget, *, left_out: frozenset[str] = frozenset()) -> Found:
    """Return where an object asks for devices, and where it has containers; keys of `left_out` are not looked into.

    Raises BudgetSpentError.
    """
    budget.read(document)
    stack = [_Place({key: value for key, value in document.items() if key not in _HEAD})]
    containers = ""
    while stack:
        place = stack.pop()
        budget.step(_PLACE_STEPS + _VALUE_STEPS * len(place.value))
        below: list[_Place] = []
        is_list = isinstance(place.value, list)
        for key, value in enumerate(place.value) if isinstance(place.value, list) else place.value.items():
            name = place.name if is_list else str(key)
            counts = place.counts and name not in _ELSEWHERE
            if not isinstance(value, dict | list):
                if _asks(value, name, budget, counts=counts, is_gpu=place.is_gpu):
                    return Found(place.path(key), containers)
            elif is_list or name not in left_out:
                is_gpu = place.is_gpu or (counts and _names_gpus(name))
                below.append(_Place(value, place, f"[{key}]" if is_list else f".{key}", name, counts, is_gpu))
        for each in below:
            if each.counts and _is_request(each):
                return Found(each.path(), containers)
            if not containers and _has_containers(each):
                containers = each.path()
        below.reverse()
        stack += below
    return Found("", containers)


def asking_annotation(annotations: Mapping[str, str]) -> str:
    """Return the annotation by which a pod asks its scheduler for GPUs, such as KAI's gpu-fraction; "" for none."""
    for key, value in annotations.items():
        if "gpu" in key.lower() and _names_gpus(key) and _QUANTITY.fullmatch(value) and _is_some(value):
            return key
    return ""


def amounts_in(text: str, budget: Budget) -> bool:
    """Whether a text, such as a manifest in a field, gives a number of GPUs. Raises BudgetSpentError."""
    budget.step(1 + len(text) // _TEXT_BYTES)
    for number, found in enumerate(_AMOUNT.finditer(text)):
        if number == _MOST_AMOUNTS:
            return True  # a text of so many amounts is a manifest, and not looked through
        slash = found.start()
        domain = _DOMAIN.search(text, max(0, slash - _LONGEST_DOMAIN), slash)
        if domain is not None and looks_like_gpu(f"{domain[0]}/{found[1]}"):
            return True
    return False


def _has_containers(place: _Place) -> bool:
    if place.key == ".containers":
        return isinstance(place.value, list)
    return place.key == ".container" and "image" in mapping(place.value)


def _is_request(place: _Place) -> bool:
    """Whether a mapping or list requests devices by its form: resources, claims, or a name with an amount."""
    if isinstance(place.value, list):
        return place.key == ".resourceClaims" and bool(place.value)
    if place.key.lower().endswith("resources") and _are_devices(place.value):
        return True
    named = (str(scalar(place.value[key])).lower() for key in _NAMES & place.value.keys())
    return not _WORDS.isdisjoint(named) and any(_is_some(place.value.get(key)) for key in _NUMBERS)


def _are_devices(resources: Json) -> bool:
    """Whether resources are extended ones, whatever device that is, or claims of devices."""
    named = (item for side in ("limits", "requests") for item in mapping(resources.get(side)).items())
    return bool(resources.get("claims")) or any("/" in str(name) and _is_some(amount) for name, amount in named)


def _asks(value: object, name: str, budget: Budget, *, counts: bool, is_gpu: bool) -> bool:
    """Whether a scalar asks: an amount by its key or one above, a device's name, a machine with GPUs, a manifest."""
    if isinstance(value, str) and amounts_in(value, budget):
        return True
    if not counts:
        return False
    if _names_gpus(name):
        return _is_some(value)
    if not isinstance(value, str):
        return is_gpu and not isinstance(value, bool) and _is_some(value)
    if is_gpu and _NUMBER.fullmatch(value):
        return _is_some(value)
    if len(value) > _LONGEST_NAME:
        return False
    if _MACHINES.search(name):
        return _GPU_MACHINE.match(value) is not None or looks_like_gpu(value)
    return _RESOURCE.fullmatch(value) is not None and looks_like_gpu(value)


def _names_gpus(key: str) -> bool:
    return (looks_like_gpu(key) or _ACCELERATOR.search(key) is not None) and _ABOUT.search(key) is None


def _is_some(value: object) -> bool:
    """Whether a value is more than nothing."""
    written = str(value) if isinstance(value, float) else scalar(value)
    return written is not None and _NOTHING.fullmatch(written.strip()) is None


# Merging of pod specs, for the fields on which demand and placement depend.


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
