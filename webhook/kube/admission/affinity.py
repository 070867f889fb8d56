"""Node affinity: the decision's choice of nodes ANDed into what the user wrote, as JSON Patch operations.

Required terms are alternatives, and matchFields takes one name a term: so every term of the user's is multiplied by
the pool's terms and by the nodes. Most pods bring no affinity; for those the JSON is a template with a gap for each
node's name, since building and encoding so many terms as objects costs more than the rest of the patch.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from webhook.core.model.decision import Steering
from webhook.core.model.policy import Mode
from webhook.core.model.selector import NODE_NAME_FIELD, Requirement
from webhook.kube.objects import objects
from webhook.kube.objects.json_patch import Operation, add, put

MOST_TERMS: Final = 512
MOST_BYTES: Final = 128 * 1024
"""Where terms would multiply to more, nodes are left out from the end: the API server limits an object's size."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PATH: Final = "/spec/affinity/nodeAffinity"
_TEMPLATES_KEPT: Final = 256
_WEIGHTS: Final = (100, 6, 2)
_GAP: Final = "\0"  # no node has this name


_Json = dict[str, Any]
_Nodes = tuple[str, ...]
_Terms = tuple[tuple[Requirement, ...], ...]

_encoder: Final = msgspec.json.Encoder()
_affinity_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def _weight(rank: int) -> int:
    """Weigh the best node with 100, the most that the API takes, and each next so that it stays far behind.

    kube-scheduler scales the highest weight among the nodes that are left to 200 points and adds other scores to it:
    free cpu and memory, their balance, images. Whichever is the best then needs a lead over all that.
    """
    return _WEIGHTS[rank] if rank < len(_WEIGHTS) else 1


def affinity_operations(present: bytes, steering: Steering) -> list[Operation]:
    """Write the choice into a pod whose spec.affinity is this raw JSON (empty where it has none).

    Raises ValueError where that is no affinity.
    """
    required, preferred = _split(steering)
    if present in objects.ABSENT:
        fresh = _fresh(steering.pool_terms, required, preferred)
        return [] if fresh is None else [add("/spec/affinity", {"nodeAffinity": fresh})]
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    node_affinity = affinity.get("nodeAffinity")
    if node_affinity is None:
        fresh = _fresh(steering.pool_terms, required, preferred)
        return [] if fresh is None else [add(_PATH, fresh)]
    return [
        *_required_operations(node_affinity, steering.pool_terms, required),
        *_preferred_operations(node_affinity, preferred),
    ]


def _split(steering: Steering) -> tuple[_Nodes, _Nodes]:
    """Say which nodes are required and which are preferred."""
    mode = steering.mode
    if mode is Mode.AUTO:
        return steering.nodes, steering.nodes[: len(_WEIGHTS)]  # the others would weigh alike
    if mode is Mode.REQUIRE:
        return steering.nodes[:1], ()
    return (), steering.nodes if mode is Mode.PREFER else ()


def _fresh(pool_terms: _Terms, required: _Nodes, preferred: _Nodes) -> _Json | msgspec.Raw | None:
    """Make the node affinity of a pod that brought none; None where there is nothing to say."""
    text = "".join(required or preferred)  # the former holds the latter where there are both
    if not text or '"' in text or "\\" in text or not text.isprintable():
        return _alone(pool_terms, required, preferred)  # no node, or a name that JSON would have to escape
    alternatives = 1 if () in pool_terms else len(pool_terms) or 1
    named = required[: _room(alternatives)]
    pieces = list(_template(pool_terms, len(named), len(preferred)))
    pieces[1::2] = named * alternatives + preferred
    return msgspec.Raw("".join(pieces).encode())


@lru_cache(maxsize=_TEMPLATES_KEPT)
def _template(pool_terms: _Terms, required: int, preferred: int) -> tuple[str, ...]:
    """Write the node affinity for so many nodes as JSON, in pieces of which every second one is a node's name."""
    affinity = _alone(pool_terms, (_GAP,) * required, (_GAP,) * preferred)
    gap = _encoder.encode(_GAP).decode()
    texts = _encoder.encode(affinity).decode().replace(gap, f'"{_GAP}"').split(_GAP)
    return tuple(piece for text in texts for piece in (text, _GAP))[:-1]


def _alone(pool_terms: _Terms, required: _Nodes, preferred: _Nodes) -> _Json | None:
    affinity: _Json = {}
    if terms := _terms_alone(pool_terms, required):
        affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
    if preferred:
        affinity[_PREFERRED] = _preferences(preferred)
    return affinity or None


def _terms_alone(pool_terms: _Terms, nodes: _Nodes) -> list[_Json]:
    """Make the terms of a pod that brought none."""
    variants = _in_pools({}, pool_terms)
    terms = [term for variant in variants for term in _on_nodes(variant, nodes, _room(len(variants)))]
    return [term for term in terms if term]


def _preferences(nodes: _Nodes) -> list[_Json]:
    return [{"weight": _weight(rank), "preference": {"matchFields": [_named(node)]}} for rank, node in enumerate(nodes)]


def _required_operations(node_affinity: _Json, pool_terms: _Terms, nodes: _Nodes) -> Iterator[Operation]:
    if not pool_terms and not nodes:
        return
    present = node_affinity.get(_REQUIRED)
    if present is None:
        if terms := _terms_alone(pool_terms, nodes):
            yield put(f"{_PATH}/{_REQUIRED}", {"nodeSelectorTerms": terms}, exists=_REQUIRED in node_affinity)
        return
    written: list[_Json] = present.get("nodeSelectorTerms") or []
    terms = _multiplied(written, pool_terms, nodes)
    if terms != written:
        yield put(f"{_PATH}/{_REQUIRED}/nodeSelectorTerms", terms, exists=True)


def _preferred_operations(node_affinity: _Json, nodes: _Nodes) -> Iterator[Operation]:
    present = node_affinity.get(_PREFERRED)
    preferences = _preferences(nodes)
    if present is not None:
        yield from (
            add(f"{_PATH}/{_PREFERRED}/-", preference) for preference in preferences if preference not in present
        )
    elif preferences:
        yield put(f"{_PATH}/{_PREFERRED}", preferences, exists=_PREFERRED in node_affinity)


def _multiplied(written: list[_Json], pool_terms: _Terms, nodes: _Nodes) -> list[_Json]:
    """AND the pool's terms and the nodes into each of the user's terms.

    Empty terms match no node and are left out. Where nothing would be left to match, the user's terms stay too:
    the decision does not fit this pod any more, and its own word comes first.
    """
    variants = [(term, _in_pools(term, pool_terms)) for term in written if _is_set(term)]
    open_ = [variant for _, group in variants for variant in group if _pinned(variant) is None]
    room = min(_room(len(open_)), max(1, MOST_BYTES // max(1, len(_encoder.encode(open_)))))
    result: list[_Json] = []
    made: set[bytes] = set()
    for original, group in variants:
        for term in [term for variant in group for term in _on_nodes(variant, nodes, room)]:
            encoded = _encoder.encode(term)
            if term is original or encoded not in made:
                made.add(encoded)
                result.append(term)
    return result or written


def _in_pools(term: _Json, pool_terms: _Terms) -> list[_Json]:
    """AND each pool term into a copy of the term, unless the term meets one of them by its own words."""
    written = term.get("matchExpressions") or []
    present = {_requirement(r) for r in written}
    missing = [[e for e in _expressions(pool) if _requirement(e) not in present] for pool in pool_terms]
    if not all(missing):
        return [term]
    return [{**term, "matchExpressions": [*written, *more]} for more in missing] or [term]


def _on_nodes(term: _Json, nodes: _Nodes, room: int) -> list[_Json]:
    """AND each node's name into a copy of the term, without those that the term rules out by name."""
    if not nodes:
        return [term]
    pinned = _pinned(term)
    if pinned is not None:
        return [term] if pinned in nodes else []
    fields = term.get("matchFields") or []
    excluded = {value for r in fields if r.get("operator") == "NotIn" for value in r.get("values") or ()}
    return [{**term, "matchFields": [*fields, _named(node)]} for node in nodes[:room] if node not in excluded]


def _pinned(term: _Json) -> str | None:
    """Find the one node that a term names; matchFields knows no field but the name, and one value each."""
    for field in term.get("matchFields") or ():
        if field.get("operator") == "In" and field.get("values"):
            name: str = field["values"][0]
            return name
    return None


def _is_set(term: _Json) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _room(terms: int) -> int:
    return max(1, MOST_TERMS // max(1, terms))


def _named(node: str) -> _Json:
    return {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}


def _requirement(written: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return str(written.get("key")), str(written.get("operator")), tuple(written.get("values") or ())


def _expressions(pool: Sequence[Requirement]) -> list[_Json]:
    return [
        {"key": r.key, "operator": str(r.operator), **({"values": list(r.values)} if r.values else {})} for r in pool
    ]
