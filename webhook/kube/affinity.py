"""Node affinity: the decision's choice of nodes ANDed into what the user wrote, as JSON Patch operations.

Required terms are alternatives, and matchFields takes one name a term: so every term of the user's is multiplied by
the pool's terms and by the nodes. Most pods bring no affinity; for those the value is put together from fragments of
JSON, encoded once per node, since building it as objects costs more than the rest of the patch.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from webhook.core.decision import Steering
from webhook.core.policy import Mode
from webhook.core.selector import Requirement
from webhook.kube import keys, objects
from webhook.kube.pointer import Operation, add, put

MOST_TERMS: Final = 512
"""Terms are multiplied until there are about so many, then nodes are left out from the end: objects have a size limit."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PATH: Final = "/spec/affinity/nodeAffinity"
_FRAGMENTS_KEPT: Final = 32_768

_Json = dict[str, Any]
_Terms = tuple[tuple[Requirement, ...], ...]

_encoder: Final = msgspec.json.Encoder()
_affinity_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class _Fragments(dict[str, bytes]):
    """The inside of a term that names one node, as JSON, by node name."""

    def __missing__(self, node: str) -> bytes:
        if len(self) >= _FRAGMENTS_KEPT:
            self.clear()
        fragment = self[node] = _encoder.encode({"matchFields": [_named(node)]})[1:]
        return fragment


_FRAGMENTS: Final = _Fragments()


def affinity_operations(present: bytes, steering: Steering) -> list[Operation]:
    """Write the choice into a pod whose spec.affinity is this raw JSON (empty where it has none).

    Raises ValueError where that is no affinity.
    """
    required, preferred = _split(steering)
    if present in objects.ABSENT:
        changes = _changes(_fresh_terms(steering.pool_terms, required), _fresh_preferences(preferred))
        return [add("/spec/affinity", {"nodeAffinity": changes})] if changes else []
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    node_affinity = affinity.get("nodeAffinity")
    if node_affinity is None:
        changes = _changes(_fresh_terms(steering.pool_terms, required), _fresh_preferences(preferred))
        return [add(_PATH, changes)] if changes else []
    return [
        *_required_operations(node_affinity, steering.pool_terms, required),
        *_preferred_operations(node_affinity, preferred),
    ]


def _split(steering: Steering) -> tuple[Sequence[str], Sequence[str]]:
    """Say which nodes are required and which are preferred."""
    match steering.mode:
        case Mode.AUTO:
            return steering.nodes, steering.nodes
        case Mode.REQUIRE:
            return steering.nodes[:1], ()
        case Mode.PREFER:
            return (), steering.nodes
        case Mode.OFF:
            return (), ()


def _changes(terms: msgspec.Raw | None, preferences: msgspec.Raw | None) -> _Json:
    changes: _Json = {}
    if terms is not None:
        changes[_REQUIRED] = {"nodeSelectorTerms": terms}
    if preferences is not None:
        changes[_PREFERRED] = preferences
    return changes


def _fresh_terms(pool_terms: _Terms, nodes: Sequence[str]) -> msgspec.Raw | None:
    """Encode the terms of a pod that brought none."""
    pools = [pool_term for pool_term in pool_terms if pool_term]
    if len(pools) < len(pool_terms):
        pools = []  # a pool without conditions: every node meets one of the terms
    if not pools and not nodes:
        return None
    if not nodes:
        return msgspec.Raw(_encoder.encode([{"matchExpressions": _expressions(p)} for p in pools]))
    fragments = [_FRAGMENTS[node] for node in nodes[: _room(len(pools))]]
    if not pools:
        return msgspec.Raw(b"[{" + b",{".join(fragments) + b"]")
    heads = [_encoder.encode({"matchExpressions": _expressions(pool)})[:-1] + b"," for pool in pools]
    return msgspec.Raw(b"[" + b",".join([head + fragment for head in heads for fragment in fragments]) + b"]")


_WEIGHED: Final = [b'{"weight":%d,"preference":{' % max(1, 100 - 10 * rank) for rank in range(11)]


def _fresh_preferences(nodes: Sequence[str]) -> msgspec.Raw | None:
    if not nodes:
        return None
    encoded = [_WEIGHED[min(rank, 10)] + _FRAGMENTS[node] for rank, node in enumerate(nodes)]
    return msgspec.Raw(b"[" + b"},".join(encoded) + b"}]")


def _required_operations(node_affinity: _Json, pool_terms: _Terms, nodes: Sequence[str]) -> Iterator[Operation]:
    present = node_affinity.get(_REQUIRED)
    if present is None:
        fresh = _fresh_terms(pool_terms, nodes)
        if fresh is not None:
            yield put(f"{_PATH}/{_REQUIRED}", {"nodeSelectorTerms": fresh}, exists=_REQUIRED in node_affinity)
        return
    written: list[_Json] = present.get("nodeSelectorTerms") or []
    terms = _multiplied(written, pool_terms, nodes)
    if terms != written:
        yield put(f"{_PATH}/{_REQUIRED}/nodeSelectorTerms", terms, exists=True)


def _preferred_operations(node_affinity: _Json, nodes: Sequence[str]) -> Iterator[Operation]:
    present = node_affinity.get(_PREFERRED)
    if present is None:
        if nodes:
            value = _fresh_preferences(nodes)
            yield put(f"{_PATH}/{_PREFERRED}", value, exists=_PREFERRED in node_affinity)
        return
    for rank, node in enumerate(nodes):
        preference = {"weight": max(1, 100 - 10 * rank), "preference": {"matchFields": [_named(node)]}}
        if preference not in present:
            yield add(f"{_PATH}/{_PREFERRED}/-", preference)


def _multiplied(written: list[_Json], pool_terms: _Terms, nodes: Sequence[str]) -> list[_Json]:
    """AND the pool's terms and the nodes into each of the user's terms.

    Empty terms match no node and stay as they are. Where nothing would be left to match, the user's terms stay too:
    the decision does not fit this pod any more, and its own word comes first.
    """
    variants = [(term, _in_pools(term, pool_terms)) for term in written]
    room = _room(sum(_is_set(v) and _pinned(v) is None for _, group in variants for v in group))
    result: list[_Json] = []
    made: set[bytes] = set()
    for original, group in variants:
        for term in [term for variant in group for term in _on_nodes(variant, nodes, room)]:
            encoded = _encoder.encode(term)
            if term is original or encoded not in made:
                made.add(encoded)
                result.append(term)
    return result if any(map(_is_set, result)) else written


def _in_pools(term: _Json, pool_terms: _Terms) -> list[_Json]:
    """AND each pool term into a copy of the term, unless the term meets one of them by its own words."""
    written = term.get("matchExpressions") or []
    present = {_requirement(r) for r in written}
    missing = [[e for e in _expressions(pool) if _requirement(e) not in present] for pool in pool_terms]
    if not _is_set(term) or not all(missing):
        return [term]
    return [{**term, "matchExpressions": [*written, *more]} for more in missing] or [term]


def _on_nodes(term: _Json, nodes: Sequence[str], room: int) -> list[_Json]:
    """AND each node's name into a copy of the term, without those that the term rules out by name."""
    if not nodes or not _is_set(term):
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
    return {"key": keys.NODE_NAME_FIELD, "operator": "In", "values": [node]}


def _requirement(written: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return str(written.get("key")), str(written.get("operator")), tuple(written.get("values") or ())


def _expressions(pool: Sequence[Requirement]) -> list[_Json]:
    return [
        {"key": r.key, "operator": str(r.operator), **({"values": list(r.values)} if r.values else {})} for r in pool
    ]
