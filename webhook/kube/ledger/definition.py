"""What the CustomResourceDefinitions of Fairgate's own kinds have in common."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from webhook.kube.objects import keys

_Json = dict[str, Any]
_MOST_NAMED: Final = 5


def definition(kind: str, plural: str, schema: _Json, *, columns: Iterable[_Json] = ()) -> _Json:
    """Return the definition of a cluster-scoped kind in its one version; `columns` are for `kubectl get`."""
    version = {"name": keys.OWN_API.partition("/")[2], "served": True, "storage": True}
    shown = {"additionalPrinterColumns": list(columns)} if columns else {}
    return {
        "apiVersion": keys.EXTENSIONS_API,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{keys.OWN_GROUP}", "labels": dict(keys.OWN_LABELS)},
        "spec": {
            "group": keys.OWN_GROUP,
            "scope": "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{**version, **shown, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def column(name: str, path: str, *, kind: str = "string", **more: int) -> _Json:
    """Return a column of `kubectl get`; `priority` 1 shows it with -o wide only."""
    return {"name": name, "type": kind, "jsonPath": path, **more}


def why_unfit(found: Mapping[str, Any], needed: _Json) -> str | None:
    """Return why a definition in the cluster does not do for this version; None if it does.

    The API server drops, without an error, what a definition does not have: charges that are written would be lost.
    """
    spec, wanted = found["spec"], needed["spec"]
    if (spec["scope"], spec["names"]["kind"]) != (wanted["scope"], wanted["names"]["kind"]):
        return f"it defines {spec['scope'].lower()} objects of kind {spec['names']['kind']}"
    (version,) = wanted["versions"]
    served = [each for each in spec["versions"] if each["name"] == version["name"] and each["served"]]
    if not served:
        return f"it does not serve version {version['name']}"
    if "status" in (served[0].get("subresources") or {}):
        return "its status is a subresource"
    lacking = [*_lacking(served[0]["schema"]["openAPIV3Schema"], version["schema"]["openAPIV3Schema"], "")]
    more = ", …" if len(lacking) > _MOST_NAMED else ""
    return f"it lacks the fields {', '.join(lacking[:_MOST_NAMED])}{more}" if lacking else None


def _lacking(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the fields that a schema lacks, or has with another type."""
    if found.get("x-kubernetes-preserve-unknown-fields"):
        return
    if found.get("type") != wanted.get("type"):
        yield path.removeprefix(".")
        return
    for key, field in (wanted.get("properties") or {}).items():
        yield from _lacking((found.get("properties") or {}).get(key) or {}, field, f"{path}.{key}")
    for part in ("items", "additionalProperties"):
        if part in wanted:
            yield from _lacking(found.get(part) or {}, wanted[part], f"{path}[]")
