"""Guards of the size of GPU pods: none may grow until the API server can no longer write to it.

etcd takes 1.5 MiB. What the API server writes to evict a pod, to label it or to report its status must still fit, or no
one can evict or delete it (tried: each such request ends with status 500, "request is too large"). The API server
bounds annotations (256 KiB) and not owner references, finalizers, images, tolerations or debug containers. With each
manager of server-side apply it stores the names of all fields once more.

The webhook bounds a new pod as a whole (webhook/kube/objects/bounds.py), these guards what may be added later. What is
too large already may stay and shrink.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from webhook.core.model.policy import Policy
from webhook.core.model.reasons import Code
from webhook.kube.objects.bounds import AFFINITY_BYTES, APPLIED, GROWTH_BYTES
from webhook.kube.registration.admission_policy import (
    EXEMPT_LABEL,
    admission_policy,
    core_rule,
    own_expression,
    trusted_expression,
)
from webhook.kube.registration.registration import gpu_pod_expression, quoted

SIZES: Final = "fairgate-sizes"
BINDING_SIZES: Final = "fairgate-binding-sizes"

_MAX_ITEMS: Final = 2_000
"""Items of a pod that are added up, for CEL's time: more are too many. Real pods have some dozens."""

_TOO_MANY: Final = 1_000_000_000
"""The size of a pod with more items: above any real size, and more with each item."""

_NAME: Final = 8
"""Times that the name of a field counts: it is stored again with each manager that has set it."""

_TEXT: Final = 4
"""Bytes of a character of a free text, at most."""

_FREE_NAME: Final = 48
"""Both, for names of any text: they are escaped twice where they are stored again."""

_Json = dict[str, Any]


def size_guards(policy: Policy, trusted_users: Iterable[str]) -> list[_Json]:
    """Return the guards: of pods, through each subresource, and of bindings, whose annotations become the pod's."""
    return [_pods(policy, trusted_users), _bindings(policy)]


def _pods(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """Refuse what makes a pod too large, unless it was larger before.

    Kubelets and Kubernetes' own controllers may always change pods: they add little, and without them no pod ends. A
    pod that a controller creates has its size from the template, which is its user's.
    """
    nodes, controllers = quoted("system:nodes"), quoted("system:serviceaccounts:kube-system")
    is_own = f'{controllers} in request.userInfo.groups || request.userInfo.username.startsWith("system:kube-")'
    writers = f'{nodes} in request.userInfo.groups || (request.operation == "UPDATE" && ({is_own}))'
    guard = admission_policy(
        SIZES,
        of=policy,
        rules=[core_rule(["pods"], "CREATE", "UPDATE"), core_rule(_SUBRESOURCES, "UPDATE")],
        conditions={"is-written-by-a-user": f"!({writers})", "may-hold-gpus": gpu_pod_expression(policy)},
        validations=[_validation(measure, trusted_users) for measure in _MEASURES],
    )
    guard["spec"]["variables"] = [
        {"name": name, "expression": text}
        for measure in _MEASURES
        for name, text in (
            (measure.name, _of("object", measure)),
            (f"{measure.name}Before", f"oldObject == null ? 0 : ({_of('oldObject', measure)})"),
        )
    ]
    return guard


def _bindings(policy: Policy) -> _Json:
    """Only schedulers may bind pods, and the API server checks no size of what a binding adds to its pod."""
    parts = [
        _Part(f"dyn(object).metadata.{at}", f"c.size() + dyn(object).metadata.{at}[c].size()")
        for at in ("labels", "annotations")
    ]
    return admission_policy(
        BINDING_SIZES,
        of=policy,
        rules=[core_rule(["bindings", "pods/binding"], "CREATE")],
        conditions={"adds-something": " || ".join(f"has({part.path})" for part in parts)},
        validations=[
            {
                "expression": f"{EXEMPT_LABEL} || ({_size(parts)}) <= {GROWTH_BYTES}",
                "message": f"labels and annotations of a binding have more than {GROWTH_BYTES:,} bytes, and the pod "
                f"gets them: reduce them ({Code.TOO_LARGE})",
            }
        ],
    )


class _Measure(NamedTuple):
    """An amount of a pod that may not grow above a maximum: what it is, and its CEL expression."""

    name: str
    what: str
    maximum: int
    size: str


def _of(root: str, measure: _Measure) -> str:
    return measure.size.replace("{root}", root)


def _validation(measure: _Measure, trusted_users: Iterable[str]) -> _Json:
    size = f"variables.{measure.name}"
    holds = f"{size} <= {measure.maximum} || {size} <= {size}Before || {EXEMPT_LABEL} || {own_expression()}"
    return {
        "expression": trusted_expression(trusted_users, holds),
        "message": f"{measure.what} would be more than {measure.maximum:,}, as Fairgate counts them: such a pod could "
        f"grow until it cannot be evicted or deleted; reduce them ({Code.TOO_LARGE})",
    }


@dataclass(frozen=True, slots=True)
class _Part:
    """A list or map of a pod: its path, and in CEL the bytes of an item `c`, or of items `i` of its own lists."""

    path: str
    bytes_of_item: str
    inner: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> str:
        """How many items there are."""
        return _where_set(self.path, f"{self.path}.size()")

    @property
    def inner_number(self) -> str:
        """How many items these have."""
        numbers = " + ".join(_where_set(f"c.{path}", f"c.{path}.size()") for path in self.inner)
        return _where_set(self.path, f"{self.path}.map(c, {numbers}).sum()") if numbers else ""

    @property
    def bytes_of_all(self) -> str:
        """How many bytes they have."""
        inner = (_where_set(f"c.{path}", f"c.{path}.map(i, {each}).sum()") for path, each in self.inner.items())
        return _where_set(self.path, f"{self.path}.map(c, {' + '.join((self.bytes_of_item, *inner))}).sum()")


def _size(parts: Iterable[_Part]) -> str:
    """Return the size of some parts in CEL; where they have too many items, that is above any size."""
    known = list(parts)
    number, total = (" + ".join(getattr(part, name) for part in known) for name in ("number", "bytes_of_all"))
    inner = " + ".join(filter(None, (part.inner_number for part in known)))
    large = "".join(f"({each}) > {_MAX_ITEMS} ? {_TOO_MANY} + {each} : " for each in (number, inner) if each)
    return f"{large}({total})"


def _where_set(path: str, then: str) -> str:
    """Return an expression that is 0 where a field is not set; a pod's metadata and spec are."""
    root, *parts = path.split(".")
    first = 2 if parts[0] in {"metadata", "spec"} else 1
    is_set = " && ".join(f"has({'.'.join((root, *parts[:end]))})" for end in range(first, len(parts) + 1))
    return f"({is_set} ? {then} : 0)"


def _texts(weight: int, *paths: str) -> str:
    return " + ".join(_where_set(path, f"{weight} * {path}.size()") for path in paths)


_SUBRESOURCES: Final = ["pods/status", "pods/ephemeralcontainers", "pods/resize"]
_META: Final = "{root}.metadata"
_SPEC: Final = "{root}.spec"
_NODE_AFFINITY: Final = f"{_SPEC}.affinity.nodeAffinity"
_WINDOWS: Final = "c.securityContext.windowsOptions"
_DEBUGGER: Final = _texts(
    _TEXT,
    *("c.image", "c.workingDir", "c.terminationMessagePath"),
    *(f"c.securityContext.seLinuxOptions.{each}" for each in ("user", "role", "type", "level")),
    *(f"{_WINDOWS}.{each}" for each in ("gmsaCredentialSpec", "gmsaCredentialSpecName", "runAsUserName")),
    *(f"c.securityContext.{each}.localhostProfile" for each in ("seccompProfile", "appArmorProfile")),
)
_DEBUGGER_LISTS: Final = {
    **dict.fromkeys(
        ("command", "args", "securityContext.capabilities.add", "securityContext.capabilities.drop"),
        f"16 + {_TEXT} * i.size()",
    ),
    "env": f"64 + {_FREE_NAME} * i.name.size() + {_texts(_TEXT, 'i.value')} + (has(i.valueFrom) ? 1024 : 0)",
    "envFrom": f"512 + {_texts(_TEXT, 'i.prefix')}",
    "volumeMounts": f"512 + {_FREE_NAME} * i.mountPath.size() + {_texts(_TEXT, 'i.subPath', 'i.subPathExpr')}",
    "volumeDevices": f"512 + {_FREE_NAME} * i.devicePath.size()",
}
"""The lists of a debug container. Of a pod's containers only images may change; fields that are left out are short."""

_EXPRESSION: Final = f"64 + {_TEXT} * i.key.size() + (has(i.values) ? i.values.map(v, {_TEXT} * v.size()).sum() : 0)"
_TERMS: Final = dict.fromkeys(("matchExpressions", "matchFields"), _EXPRESSION)
_PREFERENCES: Final = {f"preference.{path}": each for path, each in _TERMS.items()}
_OWNER: Final = f"64 + {_FREE_NAME} * c.uid.size() + {_TEXT} * (c.name.size() + c.kind.size() + c.apiVersion.size())"

_MEASURES: Final = (
    _Measure(
        "metadata",
        "the bytes of labels, finalizers, ownerReferences and keys of annotations",
        GROWTH_BYTES,
        _size(
            (
                _Part(f"{_META}.labels", f"{_NAME} * c.size() + {_META}.labels[c].size()"),
                _Part(f"{_META}.annotations", f"{_NAME} * c.size()"),
                _Part(f"{_META}.finalizers", f"{_NAME} * c.size()"),
                _Part(f"{_META}.ownerReferences", _OWNER),
            )
        ),
    ),
    _Measure(
        "spec",
        "the bytes of images, tolerations and ephemeralContainers",
        GROWTH_BYTES,
        _size(
            (
                _Part(f"{_SPEC}.containers", _texts(_TEXT, "c.image")),
                _Part(f"{_SPEC}.initContainers", _texts(_TEXT, "c.image")),
                _Part(f"{_SPEC}.tolerations", f"64 + {_texts(_TEXT, 'c.key', 'c.value')}"),
                _Part(f"{_SPEC}.ephemeralContainers", f"256 + {_DEBUGGER}", _DEBUGGER_LISTS),
            )
        ),
    ),
    _Measure(
        "placement",
        "the bytes of nodeSelector and nodeAffinity",
        AFFINITY_BYTES,
        # a new pod has the affinity that Fairgate wrote, and the webhook bounds the user's
        "oldObject == null ? 0 : "
        + _size(
            (
                _Part(f"{_SPEC}.nodeSelector", f"c.size() + {_SPEC}.nodeSelector[c].size()"),
                _Part(
                    f"{_NODE_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", "16", _TERMS
                ),
                _Part(f"{_NODE_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution", "16", _PREFERENCES),
            )
        ),
    ),
    _Measure(
        "managers",
        "the managers that apply the pod (metadata.managedFields)",
        APPLIED,
        _where_set(f"{_META}.managedFields", f'{_META}.managedFields.filter(m, m.operation == "Apply").size()'),
    ),
)
"""What may grow after the creation. Managers that update pods are ten at most, and of a field the last one is kept."""
