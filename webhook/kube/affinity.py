"""Node affinity: the decision's choice of nodes ANDed into what the user wrote, as JSON Patch operations.

Required terms are alternatives, and matchFields takes one name a term: so every term of the user's is multiplied by
the pool's terms and by the nodes. Most pods bring no affinity; for those the value is put together from fragments of
JSON, encoded once per node, since building it as objects costs more than the rest of the patch.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final

import msgspec

from webhook.core.decision import Steering
from webhook.core.policy import Mode
from webhook.core.selector import Requirement
from webhook.kube import keys, objects
from webhook.kube.pointer import Operation, add, put

MOST_TERMS: Final = 512
"""Where terms would multiply to more, nodes are left out from the end: the API server limits an object's size."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PATH: Final = "/spec/affinity/nodeAffinity"
_FRAGMENTS_KEPT: Final = 32_768
_CHOICES_KEPT: Final = 512

# on Python 3.11 each `Mode.X` costs 0.1 us
_AUTO: Final = Mode.AUTO
_REQUIRE: Final = Mode.REQUIRE
_PREFER: Final = Mode.PREFER

_Json = dict[str, Any]
_Names = tuple[str, ...]
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


def _weight(rank: int) -> int:
    """Weigh the best node with 100, the most that the API takes, and the others so that they do not come near it.

    kube-scheduler doubles this score and adds others to it, of which spreading a Deployment's pods alone can reach 200:
    the first choice needs all the lead it can get.
    """
    return max(1, 10 - rank) if rank else 100


_WEIGHED: Final = [b'{"weight":%d,"preference":{' % _weight(rank) for rank in range(10)]
_LEAST: Final = repeat(b'{"weight":%d,"preference":{' % _weight(10))


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


def _split(steering: Steering) -> tuple[_Names, _Names]:
    """Say which nodes are required and which are preferred."""
    mode = steering.mode
    if mode is _AUTO:
        return steering.nodes, steering.nodes
    if mode is _REQUIRE:
        return steering.nodes[:1], ()
    return (), steering.nodes if mode is _PREFER else ()


@lru_cache(maxsize=_CHOICES_KEPT)
def _fresh(pool_terms: _Terms, required: _Names, preferred: _Names) -> msgspec.Raw | None:
    """Encode the node affinity of a pod that brought none; pods placed in a row often get the same choice."""
    changes: _Json = {}
    terms = _fresh_terms(pool_terms, required)
    if terms is not None:
        changes[_REQUIRED] = {"nodeSelectorTerms": terms}
    if preferred:
        changes[_PREFERRED] = _fresh_preferences(preferred)
    return msgspec.Raw(_encoder.encode(changes)) if changes else None


def _fresh_terms(pool_terms: _Terms, nodes: _Names) -> msgspec.Raw | None:
    """Encode the terms of a pod that brought none."""
    if not pool_terms or () in pool_terms:  # a pool without conditions: every node meets one of the terms
        if not nodes:
            return None
        return msgspec.Raw(b"[{" + b",{".join([_FRAGMENTS[node] for node in nodes[:MOST_TERMS]]) + b"]")
    if not nodes:
        return msgspec.Raw(_encoder.encode([{"matchExpressions": _expressions(pool)} for pool in pool_terms]))
    fragments = [_FRAGMENTS[node] for node in nodes[: _room(len(pool_terms))]]
    heads = [_encoder.encode({"matchExpressions": _expressions(pool)})[:-1] + b"," for pool in pool_terms]
    return msgspec.Raw(b"[" + b",".join([head + fragment for head in heads for fragment in fragments]) + b"]")


def _fresh_preferences(nodes: _Names) -> msgspec.Raw:
    weighed = [weight + _FRAGMENTS[node] for weight, node in zip(chain(_WEIGHED, _LEAST), nodes, strict=False)]
    return msgspec.Raw(b"[" + b"},".join(weighed) + b"}]")


def _required_operations(node_affinity: _Json, pool_terms: _Terms, nodes: _Names) -> Iterator[Operation]:
    if not pool_terms and not nodes:
        return
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


def _preferred_operations(node_affinity: _Json, nodes: _Names) -> Iterator[Operation]:
    present = node_affinity.get(_PREFERRED)
    if present is None:
        if nodes:
            yield put(f"{_PATH}/{_PREFERRED}", _fresh_preferences(nodes), exists=_PREFERRED in node_affinity)
        return
    for rank, node in enumerate(nodes):
        preference = {"weight": _weight(rank), "preference": {"matchFields": [_named(node)]}}
        if preference not in present:
            yield add(f"{_PATH}/{_PREFERRED}/-", preference)


def _multiplied(written: list[_Json], pool_terms: _Terms, nodes: _Names) -> list[_Json]:
    """AND the pool's terms and the nodes into each of the user's terms.

    Empty terms match no node and are left out. Where nothing would be left to match, the user's terms stay too:
    the decision does not fit this pod any more, and its own word comes first.
    """
    variants = [(term, _in_pools(term, pool_terms)) for term in written if _is_set(term)]
    room = _room(sum(_pinned(variant) is None for _, group in variants for variant in group))
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


def _on_nodes(term: _Json, nodes: _Names, room: int) -> list[_Json]:
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
    return {"key": keys.NODE_NAME_FIELD, "operator": "In", "values": [node]}


def _requirement(written: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return str(written.get("key")), str(written.get("operator")), tuple(written.get("values") or ())


def _expressions(pool: Sequence[Requirement]) -> list[_Json]:
    return [
        {"key": r.key, "operator": str(r.operator), **({"values": list(r.values)} if r.values else {})} for r in pool
    ]
