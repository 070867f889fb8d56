"""The domain that a gang asks for, by the annotations of its pods: Fairgate's own, or those of Kueue."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from webhook.core.model.domain_request import ANYWHERE, DomainRequest
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import shortened

_MAX_VALUE: Final = 400
"""Characters of a value: a label key has 317 at most."""

_NAME: Final = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL_KEY: Final = re.compile(f"({_PREFIX}/)?{_NAME}")
_TOPOLOGIES: Final = frozenset(keys.TOPOLOGIES)
_WORDS: Final = frozenset({"required", "preferred"})
_SHOWN: Final = 30


def domain_request(annotations: Mapping[str, str]) -> DomainRequest | None:
    """Return the domain that a pod asks for; None without a valid annotation."""
    if (value := annotations.get(keys.TOPOLOGY)) is not None:
        return parse_request(value) if len(value) <= _MAX_VALUE else None
    for name, is_required in ((keys.KUEUE_REQUIRED_TOPOLOGY, True), (keys.KUEUE_PREFERRED_TOPOLOGY, False)):
        if (value := annotations.get(name)) is not None:
            return DomainRequest(value, is_required) if _is_key(value) else None
    return ANYWHERE if annotations.get(keys.KUEUE_ANY_TOPOLOGY) == "true" else None


def required_by_key(key: str) -> DomainRequest | None:
    """Return the request for one domain of a key that is no annotation; None where it cannot be a label's key."""
    return DomainRequest(key, is_required=True) if _is_key(key) else None


def domain_problem(annotations: Mapping[str, str], *, is_in_gang: bool) -> str:
    """Return why the annotation that counts is ignored; "" if it is not."""
    if _TOPOLOGIES.isdisjoint(annotations):
        return ""
    name = next(name for name in keys.TOPOLOGIES if name in annotations)
    if name == keys.KUEUE_ANY_TOPOLOGY:
        return ""
    if (request := domain_request(annotations)) is not None:
        if is_in_gang or not request.key:
            return ""
        return f"annotation {name} is ignored: the pod has no controller and no mark of a gang"
    expected = "KEY, required=KEY, preferred=KEY or none" if name == keys.TOPOLOGY else "the key of a node label"
    return f"annotation {name} {shortened(annotations[name], _SHOWN)!r} is ignored: write {expected}"


@lru_cache(maxsize=1024)
def parse_request(value: str) -> DomainRequest | None:
    """Return what a value of annotation fairgate.dev/topology asks for; None where it is malformed."""
    if value == "none":
        return ANYWHERE
    word, is_split, key = value.partition("=")
    if not is_split:
        return None if word in _WORDS or not _is_key(word) else DomainRequest(word, is_required=True)
    return DomainRequest(key, word == "required") if word in _WORDS and _is_key(key) else None


def _is_key(text: str) -> bool:
    return len(text) <= _MAX_VALUE and _LABEL_KEY.fullmatch(text) is not None
