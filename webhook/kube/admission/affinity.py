"""Node affinity: JSON Patch operations that AND the chosen nodes into the pod's own affinity.

Required terms are alternatives, and matchFields takes one name per term: each of the user's terms is multiplied by
the pool's terms and by the nodes. Most pods have no affinity. For those the JSON comes from a cached template with a
placeholder for each node name: building and encoding that many terms costs more than the rest of the patch.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.constraints import NODE_NAME_FIELD, Operator, Requirement
from webhook.core.model.decision import NodeChoice
from webhook.core.model.policy import Mode
from webhook.kube.objects import objects
from webhook.kube.objects.keys import Operation, add, put, remove

MAX_TERMS: Final = 512
MAX_BYTES: Final = 128 * 1024
"""Above these limits, the last nodes are dropped: the API server limits the size of an object."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PATH: Final = "/spec/affinity/nodeAffinity"
_CACHED_TEMPLATES: Final = 256
_WEIGHTS: Final = (100, 6, 2)
_PREFERRED_OF_LIST: Final = 2  # if both are lost, the others are equally good
_PLACEHOLDER: Final = "\0"  # no node has this name


_Json = dict[str, Any]
_Nodes = tuple[str, ...]
_Terms = tuple[tuple[Requirement, ...], ...]

_encoder: Final = msgspec.json.Encoder()
_affinity_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def _weight(rank: int) -> int:
    """Return the preference weight of a node: 100 for the best, the API's maximum, and far less for each next one.

    kube-scheduler scales the highest weight among the feasible nodes to 200 points and adds other scores: free cpu and
    memory, their balance, images. The best feasible node needs a lead larger than the sum of those.
    """
    return _WEIGHTS[rank] if rank < len(_WEIGHTS) else 1


def affinity_operations(present: bytes, node_choice: NodeChoice) -> list[Operation]:
    """Return the operations that add the chosen nodes to a pod with this raw spec.affinity (empty if it has none).

    Raises ValueError if the JSON is not an affinity.
    """
    required, preferred = _split(node_choice)
    if present in objects.ABSENT:
        new = _new_affinity(node_choice.pool_terms, required, preferred)
        return [] if new is None else [add("/spec/affinity", {"nodeAffinity": new})]
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    node_affinity = affinity.get("nodeAffinity")
    if node_affinity is None:
        new = _new_affinity(node_choice.pool_terms, required, preferred)
        return [] if new is None else [add(_PATH, new)]
    return [
        *_required_operations(node_affinity, node_choice.pool_terms, required),
        *_preferred_operations(node_affinity, preferred),
    ]


def narrowing_operations(present: bytes, node_choice: NodeChoice) -> list[Operation]:
    """Return operations that only narrow the required terms of a pod that waits with a scheduling gate.

    kube-apiserver takes no other change: each of the user's terms stays in its place, with more conditions at its end.
    An empty term matches no node, and stays empty. Of several pools or nodes the first is required.
    """
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    node_affinity = affinity["nodeAffinity"]
    _, preferred = _split(node_choice)
    nodes = () if node_choice.mode in (Mode.PREFER, Mode.OFF) else node_choice.nodes[:1]
    written = node_affinity[_REQUIRED].get("nodeSelectorTerms") or []
    terms = [_narrowed(term, node_choice.pool_terms[:1], nodes) for term in written]
    path = f"{_PATH}/{_REQUIRED}/nodeSelectorTerms"
    changed = [put(path, terms, exists=True)] if terms != written else []
    return [*changed, *_preferred_operations(node_affinity, preferred[:1])]


def has_conditions(present: bytes, pool_terms: _Terms) -> bool:
    """Whether required terms of an affinity have a condition of a pool. Raises ValueError if it is none."""
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    written = {
        _requirement(r) for term in required.get("nodeSelectorTerms") or () for r in term.get("matchExpressions") or ()
    }
    return any(_requirement(each) in written for pool in pool_terms for each in _expressions(pool))


def chosen_in(present: bytes) -> _Nodes:
    """Return the nodes of an affinity that has exactly the shape in which lists of nodes are written; else none.

    That is required names, and preferences by the weights of the first of them, in their order. Copies may have lost
    all else that says who wrote it. Raises ValueError if the JSON is not an affinity.
    """
    if NODE_NAME_FIELD.encode() not in present:
        return ()
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    names = [_pinned(term) for term in terms]
    nodes = tuple(dict.fromkeys([name for name in names if name is not None]))
    preferred = node_affinity.get(_PREFERRED) or []
    is_ours = None not in names and all(each in preferred for each in _preferences(nodes[:_PREFERRED_OF_LIST]))
    return nodes if is_ours else ()


class WithoutChoice(NamedTuple):
    """An affinity without a choice of nodes (absent if nothing is left of it), and the operations that change it so."""

    left: msgspec.Raw
    operations: list[Operation]


def without_choice(present: bytes, nodes: Collection[str], pool: Sequence[Requirement]) -> WithoutChoice | None:
    """Take chosen nodes, and the conditions of a pool, off an affinity that has them; None where there is none.

    Terms are alternatives: of those that differ in nodes only one is left, and where one has no other condition, none.
    Raises ValueError if the JSON is not an affinity.
    """
    if not nodes and not pool:
        return None
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    written = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    preferred = node_affinity.get(_PREFERRED) or []
    pools = {_requirement(each) for each in _expressions(pool)}
    cleared = [_cleared(term, nodes, pools) for term in written]
    terms = list({_encoder.encode(left): left for left in cleared}.values())
    wanted = [each for each in preferred if not _is_choice(each.get("preference") or {}, nodes)]
    if terms == written and wanted == preferred:
        return None
    kept: _Json = {key: value for key, value in node_affinity.items() if key not in (_REQUIRED, _PREFERRED)}
    if terms and not any(map(_is_emptied, written, cleared)):
        kept[_REQUIRED] = {"nodeSelectorTerms": terms}
    if wanted:
        kept[_PREFERRED] = wanted
    others = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    if not kept and not others:
        return WithoutChoice(objects.NOTHING, [remove("/spec/affinity")])
    left = msgspec.Raw(_encoder.encode({**others, "nodeAffinity": kept} if kept else others))
    return WithoutChoice(left, [put(_PATH, kept, exists=True) if kept else remove(_PATH)])


def _cleared(term: _Json, nodes: Collection[str], pool: Collection[object]) -> _Json:
    """Return a term without fields that name chosen nodes, and without the conditions of a pool."""
    fields = [each for each in term.get("matchFields") or () if not _is_named(each, nodes)]
    labels = [each for each in term.get("matchExpressions") or () if _requirement(each) not in pool]
    if len(fields) == len(term.get("matchFields") or ()) and len(labels) == len(term.get("matchExpressions") or ()):
        return term
    others = {key: value for key, value in term.items() if key not in ("matchFields", "matchExpressions")}
    return others | ({"matchExpressions": labels} if labels else {}) | ({"matchFields": fields} if fields else {})


def _is_emptied(before: _Json, after: _Json) -> bool:
    return _is_set(before) and not _is_set(after)


def _is_choice(preference: _Json, nodes: Collection[str]) -> bool:
    """Whether a preference is for a chosen node, and for nothing else."""
    fields = preference.get("matchFields") or []
    return not preference.get("matchExpressions") and len(fields) == 1 and _is_named(fields[0], nodes)


def _is_named(field: _Json, nodes: Collection[str]) -> bool:
    values: Sequence[str] = field.get("values") or ()
    return field.get("operator") == Operator.IN and len(values) == 1 and values[0] in nodes


def _narrowed(term: _Json, pool_terms: _Terms, nodes: _Nodes) -> _Json:
    if not _is_set(term):
        return term
    (narrowed,) = _in_pools(term, pool_terms)
    names = [_named(node) for node in nodes if _pinned(narrowed) != node]
    return {**narrowed, "matchFields": [*(narrowed.get("matchFields") or []), *names]} if names else narrowed


def lists_nodes(present: bytes, node_choice: NodeChoice) -> bool:
    """Whether the required terms of a patched pod name exactly the chosen nodes, in their order. Raises as above."""
    required, mode = node_choice.nodes, node_choice.mode
    if not required or not (mode is Mode.AUTO or (mode is Mode.REQUIRE and len(required) == 1)):
        return False
    if present in objects.ABSENT:
        return len(required) <= _nodes_per_term(len(node_choice.pool_terms) or 1)
    affinity = objects.read_part(_affinity_decoder, present, where="spec.affinity") or {}
    own = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    if own is None:
        terms = _terms_of(node_choice.pool_terms, required)
    else:
        terms = _multiply(own.get("nodeSelectorTerms") or [], node_choice.pool_terms, required)
    return tuple(dict.fromkeys(map(_pinned, terms))) == required


def _split(node_choice: NodeChoice) -> tuple[_Nodes, _Nodes]:
    """Return the required nodes and the preferred nodes."""
    mode = node_choice.mode
    if mode is Mode.AUTO:
        return node_choice.nodes, node_choice.nodes[:_PREFERRED_OF_LIST]
    if mode is Mode.REQUIRE:
        return node_choice.nodes[:1], ()
    return (), node_choice.nodes if mode is Mode.PREFER else ()


def _new_affinity(pool_terms: _Terms, required: _Nodes, preferred: _Nodes) -> _Json | msgspec.Raw | None:
    """Return the node affinity of a pod that has none, or None if nothing is required or preferred."""
    text = "".join(required or preferred)  # if both are set, required contains preferred
    if not text or '"' in text or "\\" in text or not text.isprintable():
        return _affinity_of(pool_terms, required, preferred)  # no node, or a name that JSON would have to escape
    alternatives = 1 if () in pool_terms else len(pool_terms) or 1
    named = required[: _nodes_per_term(alternatives)]
    pieces = list(_template(pool_terms, len(named), len(preferred)))
    pieces[1::2] = named * alternatives + preferred
    return msgspec.Raw("".join(pieces).encode())


@lru_cache(maxsize=_CACHED_TEMPLATES)
def _template(pool_terms: _Terms, required: int, preferred: int) -> tuple[str, ...]:
    """Return the node affinity for this number of nodes as JSON, split so that every second piece is a node name."""
    affinity = _affinity_of(pool_terms, (_PLACEHOLDER,) * required, (_PLACEHOLDER,) * preferred)
    placeholder = _encoder.encode(_PLACEHOLDER).decode()
    texts = _encoder.encode(affinity).decode().replace(placeholder, f'"{_PLACEHOLDER}"').split(_PLACEHOLDER)
    return tuple(piece for text in texts for piece in (text, _PLACEHOLDER))[:-1]


def _affinity_of(pool_terms: _Terms, required: _Nodes, preferred: _Nodes) -> _Json | None:
    affinity: _Json = {}
    if terms := _terms_of(pool_terms, required):
        affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
    if preferred:
        affinity[_PREFERRED] = _preferences(preferred)
    return affinity or None


def _terms_of(pool_terms: _Terms, nodes: _Nodes) -> list[_Json]:
    """Return the required terms of a pod that has none."""
    variants = _in_pools({}, pool_terms)
    terms = [term for variant in variants for term in _on_nodes(variant, nodes, _nodes_per_term(len(variants)))]
    return [term for term in terms if term]


def _preferences(nodes: _Nodes) -> list[_Json]:
    return [{"weight": _weight(rank), "preference": {"matchFields": [_named(node)]}} for rank, node in enumerate(nodes)]


def _required_operations(node_affinity: _Json, pool_terms: _Terms, nodes: _Nodes) -> Iterator[Operation]:
    if not pool_terms and not nodes:
        return
    present = node_affinity.get(_REQUIRED)
    if present is None:
        if terms := _terms_of(pool_terms, nodes):
            yield put(f"{_PATH}/{_REQUIRED}", {"nodeSelectorTerms": terms}, exists=_REQUIRED in node_affinity)
        return
    written: list[_Json] = present.get("nodeSelectorTerms") or []
    terms = _multiply(written, pool_terms, nodes)
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


def _multiply(written: list[_Json], pool_terms: _Terms, nodes: _Nodes) -> list[_Json]:
    """Return each of the user's terms ANDed with the pool's terms and the nodes.

    Empty terms match no node and are dropped. If no term remains, the user's terms are returned unchanged: the
    decision no longer fits this pod, and the user's own constraints take precedence.
    """
    variants = [(term, _in_pools(term, pool_terms)) for term in written if _is_set(term)]
    unpinned = [variant for _, group in variants for variant in group if _pinned(variant) is None]
    maximum = min(_nodes_per_term(len(unpinned)), max(1, MAX_BYTES // max(1, len(_encoder.encode(unpinned)))))
    result: list[_Json] = []
    seen: set[bytes] = set()
    for original, group in variants:
        for term in [term for variant in group for term in _on_nodes(variant, nodes, maximum)]:
            encoded = _encoder.encode(term)
            if term is original or encoded not in seen:
                seen.add(encoded)
                result.append(term)
    return result or written


def _in_pools(term: _Json, pool_terms: _Terms) -> list[_Json]:
    """Return copies of the term, each ANDed with one pool term; the term itself if it already implies one of them."""
    written = term.get("matchExpressions") or []
    present = {_requirement(r) for r in written}
    missing = [[e for e in _expressions(pool) if _requirement(e) not in present] for pool in pool_terms]
    if not all(missing):
        return [term]
    return [{**term, "matchExpressions": [*written, *more]} for more in missing] or [term]


def _on_nodes(term: _Json, nodes: _Nodes, maximum: int) -> list[_Json]:
    """Return copies of the term, one for each node that the term does not exclude by name."""
    if not nodes:
        return [term]
    pinned = _pinned(term)
    if pinned is not None:
        return [term] if pinned in nodes else []
    fields = term.get("matchFields") or []
    excluded = {value for r in fields if r.get("operator") == "NotIn" for value in r.get("values") or ()}
    return [{**term, "matchFields": [*fields, _named(node)]} for node in nodes[:maximum] if node not in excluded]


def _pinned(term: _Json) -> str | None:
    """Return the node that a term names, if any. matchFields supports only the node name, with one value each."""
    for field in term.get("matchFields") or ():
        if field.get("operator") == "In" and field.get("values"):
            name: str = field["values"][0]
            return name
    return None


def _is_set(term: _Json) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _nodes_per_term(terms: int) -> int:
    return MAX_TERMS // terms or 1 if terms else MAX_TERMS


def _named(node: str) -> _Json:
    return {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}


def _requirement(written: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return str(written.get("key")), str(written.get("operator")), tuple(written.get("values") or ())


def _expressions(pool: Sequence[Requirement]) -> list[_Json]:
    return [
        {"key": r.key, "operator": str(r.operator), **({"values": list(r.values)} if r.values else {})} for r in pool
    ]
