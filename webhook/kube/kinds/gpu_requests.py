"""Where an object asks for GPUs in a field that no reader knows, by keys and values (docs/workloads.md has the rule).

A field that merely mentions GPUs is none: labels, selectors, tolerations, quotas, metrics, images and free text.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.model.gpu_names import looks_like_gpu
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.model import Json, mapping, scalar

_ACCELERATOR: Final = re.compile(r"accelerator", re.IGNORECASE)
_RESOURCE: Final = re.compile(r"(?:(?:requests|limits)\.)?[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}/[\w.-]{1,63}")
"""A whole text that can be the name of an extended resource: nvidia.com/GA102GL_A10."""
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_LONGEST_NAME: Final = 256
_AMOUNT: Final = re.compile(r"""([\w.-]{3,63}/[\w.-]{1,63})["']?[ \t]{0,8}[:=][ \t]{0,8}["']?([1-9]|\{\{|\$)""")
"""A resource and its number in a text that is a manifest itself: nvidia.com/gpu: 8."""
_NOTHING: Final = re.compile(r"0*(\.0*)?|false|no|none|off|disabled", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
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
_CONTAINERS: Final = frozenset({"containers", "initContainers", "sidecars", "steps"})
_TEXT_BYTES: Final = 32
"""Bytes of a text that are searched in a step."""


class _Place(NamedTuple):
    """A value in an object: below another one, its key there, and whether fields below it count."""

    value: object
    above: "_Place | None" = None
    key: str = ""
    counts: bool = True
    is_gpu: bool = False
    """Whether it is below a key that names GPUs."""


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
    stack = [_Place(value, key=key) for key, value in document.items() if key not in _HEAD]
    stack.reverse()
    containers = ""
    while stack:
        place = stack.pop()
        if _asks(place, budget):
            return Found(_path(place), containers)
        if not containers and _has_containers(place):
            containers = _path(place)
        stack += reversed([each for each in _below(place) if each.key.lstrip(".") not in left_out])
    return Found("", containers)


def _has_containers(place: _Place) -> bool:
    key = place.key.lstrip(".")
    return (key == "containers" and isinstance(place.value, list)) or (
        key == "container" and "image" in mapping(place.value)
    )


def amounts_in(text: str, budget: Budget) -> bool:
    """Whether a text, such as a manifest in a field, gives a number of GPUs. Raises BudgetSpentError."""
    budget.step(1 + len(text) // _TEXT_BYTES)
    return any(looks_like_gpu(found[1]) for found in _AMOUNT.finditer(text))


def _below(place: _Place) -> Iterator[_Place]:
    value = place.value
    if isinstance(value, dict):
        for key, item in value.items():
            counts = place.counts and key not in _ELSEWHERE
            yield _Place(item, place, f".{key}", counts, place.is_gpu or (counts and _names_gpus(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield _Place(item, place, f"[{index}]", place.counts, place.is_gpu)


def _asks(place: _Place, budget: Budget) -> bool:
    value, key = place.value, place.key.lstrip(".")
    if isinstance(value, str) and amounts_in(value, budget):
        return True
    if not place.counts:
        return False
    if isinstance(value, dict):
        return _is_claim_or_resource(key, value) or _is_named_amount(value)
    if isinstance(value, list):
        return key == "resourceClaims" and bool(value)
    return _asks_by_value(place, value)


def _asks_by_value(place: _Place, value: object) -> bool:
    """Whether a scalar asks: an amount below a key that names GPUs, a device's name, or a machine with GPUs."""
    named = _last_key(place)
    if _names_gpus(named) or (place.is_gpu and isinstance(value, int | float) and not isinstance(value, bool)):
        return _is_some(value)
    if not isinstance(value, str):
        return False
    if place.is_gpu and _NUMBER.fullmatch(value):
        return _is_some(value)
    if _MACHINES.search(named):
        return _GPU_MACHINE.match(value) is not None or looks_like_gpu(value)
    return len(value) <= _LONGEST_NAME and _RESOURCE.fullmatch(value) is not None and looks_like_gpu(value)


def _is_claim_or_resource(key: str, value: Json) -> bool:
    """Whether a mapping requests extended resources, whatever device that is, or claims of devices."""
    if not key.lower().endswith("resources"):
        return False
    sides = (mapping(value.get(side)) for side in ("limits", "requests"))
    return bool(value.get("claims")) or any(
        "/" in str(name) and _is_some(side[name]) for side in sides for name in side
    )


def _is_named_amount(value: Json) -> bool:
    """Whether a mapping is a resource by name with its amount: {name: GPU, value: "1"}."""
    named = any(str(scalar(value.get(key))).lower() in _WORDS for key in _NAMES)
    amounts = (value.get(key) for key in ("value", "amount", "count", "quantity"))
    return named and any(amount is not None and _is_some(amount) for amount in amounts)


def _names_gpus(key: str) -> bool:
    return (looks_like_gpu(key) or _ACCELERATOR.search(key) is not None) and _ABOUT.search(key) is None


def _is_some(value: object) -> bool:
    """Whether a value is more than nothing."""
    written = scalar(value) if not isinstance(value, float) else str(value)
    return written is not None and _NOTHING.fullmatch(written.strip()) is None


def _last_key(place: _Place | None) -> str:
    """Return the key of a value, of an element of a list that of the list."""
    while place is not None and place.key.startswith("["):
        place = place.above
    return "" if place is None else place.key.lstrip(".")


def _path(place: _Place | None) -> str:
    found = []
    while place is not None:
        found.append(place.key)
        place = place.above
    return "".join(reversed(found))
