"""What the CustomResourceDefinitions of Fairgate's own kinds have in common."""

from collections.abc import Iterable
from typing import Any

from webhook.kube.objects import keys

_Json = dict[str, Any]


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
