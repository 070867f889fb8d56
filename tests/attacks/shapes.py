"""Pods and workloads of every shape that a tenant can enlarge, each about so many bytes long.

Most are not valid for the API server; all of them reach the mutating webhook before it refuses them. Enlarged parts
have a `z` in their names, so that `salted` makes different ones.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests import builders

GPU: Final = "nvidia.com/gpu"
MIB: Final = 1024 * 1024
Json = dict[str, Any]


def review(of: Json, *, namespace: str = "vision", operation: str = "CREATE", old: Json | None = None) -> bytes:
    """Write a dry-run review as kube-apiserver does."""
    of_jobs = {} if of.get("kind") == "Pod" else {"resource": {"group": "batch", "version": "v1", "resource": "jobs"}}
    return builders.review(
        of, old=old, operation=operation, namespace=namespace, username="mallory", dry_run=True, name="p", **of_jobs
    )


def pod(spec: Mapping[str, object] = {}, *, gpus: int = 1, **metadata: object) -> Json:
    """Make a pod of one container."""
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "vision", **metadata},
        "spec": {"containers": [container], **spec},
    }


def filled(size: int, make: Callable[[int], object]) -> list[object]:
    """List different values, about so many bytes of JSON."""
    return [make(number) for number in range(max(1, size // (len(json.dumps(make(10_000))) + 2)))]


def _node_affinity(terms: list[object]) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)} if values else {"key": key, "operator": operator}


def _between(kind: str, terms: list[object]) -> Json:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _preferred(kind: str, terms: list[object]) -> Json:
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def _pod_term(number: int, *, namespaces: list[str] | None = None, operator: str = "NotIn") -> Json:
    term: Json = {
        "topologyKey": f"example.com/z{number}",
        "labelSelector": {"matchExpressions": [_expression("app", operator, f"zv{number}")]},
    }
    return term | ({"namespaces": namespaces} if namespaces else {})


def salted(body: bytes, salt: int) -> bytes:
    """Make a review that differs from others in every enlarged part."""
    return body.replace(b"z", b"z%d-" % salt)


def again(body: bytes, number: int) -> bytes:
    """Make a review of the same shape and size that is different where `salted` makes it different; 0: the same."""
    return body.replace(b"z", (b"z", b"q", b"j", b"x", b"w", b"v")[number])


def mark(**changes: object) -> str:
    """Forge a decision."""
    decision = {"demand": {GPU: "1"}, "gpus": "1", "mode": "auto", "nodes": ["node-00001"], "code": "WithinShare"}
    return json.dumps(decision | {"policy": "x", "at": "2026-01-01T00:00:00Z"} | changes)


def pods(size: int) -> Iterator[tuple[str, Json]]:
    """Name and make every shape of a pod, each so many bytes long where it can be."""
    some = size // 2
    terms = filled(some, lambda n: {"matchExpressions": [_expression(f"zk{n}", "Exists")]})
    on_host = filled(size, lambda n: {"matchExpressions": [_expression("kubernetes.io/hostname", "Gt", f"{n}")]})
    nodes = [f"node-{n:05}" for n in range(some // 14)]
    yield (
        "forged decision",
        pod(
            {"affinity": _node_affinity(terms)},
            labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"},
            annotations={"fairgate.dev/decision": mark(nodes=nodes)},
        ),
    )
    short = mark(nodes=[f"node-{n:05}" for n in range(32)])
    by_name = [{"matchFields": [_expression("metadata.name", "In", f"node-{n % 32:05}")]} for n in range(size // 90)]
    yield (
        "forged decision, bound",
        pod(
            {"affinity": _node_affinity(list(by_name))},
            labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"},
            annotations={"fairgate.dev/decision": short},
        ),
    )
    yield "node selector terms", pod({"affinity": _node_affinity(terms + terms)})
    yield "node selector terms, integers", pod({"affinity": _node_affinity(on_host)})
    digits = "9" * max(1, size - 400)
    gt = {"matchExpressions": [_expression("kubernetes.io/hostname", "Gt", digits)]}
    yield "a number of many digits", pod({"affinity": _node_affinity([gt])})
    values = [f"zv{n}" for n in range(size // 11)]
    not_in = {"matchExpressions": [_expression("kubernetes.io/hostname", "NotIn", *values)]}
    yield "NotIn with many values", pod({"affinity": _node_affinity([not_in])})
    for name, kind in (("affinity", "podAffinity"), ("anti-affinity", "podAntiAffinity")):
        listed = filled(size, _pod_term)
        yield f"required {name}", pod({"affinity": _between(kind, listed)})
        wished = filled(size, lambda n: {"weight": 1, "podAffinityTerm": _pod_term(n)})
        yield f"preferred {name}", pod({"affinity": _preferred(kind, wished)})
        hosts = filled(size, lambda n: _pod_term(n, namespaces=["nlp"]) | {"topologyKey": "kubernetes.io/hostname"})
        yield f"{name} about others", pod({"affinity": _between(kind, hosts)})
    many = [f"zn-{n}" for n in range(size // 12)]
    yield (
        "anti-affinity in many namespaces",
        pod({"affinity": _between("podAntiAffinity", [_pod_term(1, namespaces=many)])}),
    )
    yield (
        "spread constraints",
        pod(
            {
                "topologySpreadConstraints": filled(
                    size,
                    lambda n: {
                        "topologyKey": f"zk{n}",
                        "maxSkew": 1,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": f"zv{n}"}},
                    },
                )
            }
        ),
    )
    yield "node selector", pod({"nodeSelector": {f"zk{n}": "" for n in range(size // 12)}})
    yield "tolerations", pod({"tolerations": filled(size, lambda n: {"key": f"zk{n}", "operator": "Exists"})})
    yield "containers", _with_containers(filled(size, lambda n: {"name": f"zc{n}"}))
    yield (
        "containers with amounts",
        _with_containers(
            filled(size, lambda n: {"name": f"zc{n}", "resources": {"limits": {"cpu": f"{n}m", GPU: "1"}}})
        ),
    )
    yield (
        "resources",
        _with_containers(
            [
                {
                    "name": "c",
                    "resources": {"limits": {GPU: "1"} | {f"example.com/zr{n}": "1" for n in range(size // 24)}},
                }
            ]
        ),
    )
    yield "ports", _with_containers([{"name": "c", "ports": filled(size, lambda _: {})}])
    yield (
        "a long resource name",
        _with_containers([{"name": "c", "resources": {"limits": {GPU: "1", "x/z" + "g" * size: "1"}}}]),
    )
    yield "volumes", pod({"volumes": filled(size, lambda _: {})})
    yield "claims", pod({"resourceClaims": filled(size, lambda n: {"name": f"zc{n}", "resourceClaimName": f"zd{n}"})})
    yield "labels", pod(labels={f"zk{n}": "" for n in range(size // 12)})
    yield "a long label", pod(labels={"app": "z" * size})
    yield "a long tier", pod(labels={"fairgate.dev/tier": "z" * size})
    yield "owners", pod(ownerReferences=filled(size, lambda n: {"kind": "", "name": f"z{n}"}))
    yield "a long owner", pod(ownerReferences=[{"kind": "Job", "name": "z" * size, "controller": True}])
    yield "a long name", pod(name="z" * size)
    yield "capabilities", pod(annotations={"fairgate.dev/requires": ",".join(f"zc{n}" for n in range(size // 7))})
    yield "a long pool", pod(annotations={"fairgate.dev/pool": "z" * size})
    yield "a decision of digits", pod(annotations={"fairgate.dev/decision": mark(demand={GPU: "9" * size})})
    yield "nested decision", pod(annotations={"fairgate.dev/decision": "[" * size})
    yield "unread lists", pod({"unknown": [[]] * (size // 4)})
    yield "escapes", pod(annotations={"a": "\u1234" * (size // 6)})


def _with_containers(containers: list[object]) -> Json:
    made = pod()
    made["spec"]["containers"] = containers
    return made


def workloads(size: int) -> Iterator[tuple[str, Json]]:
    """Name and make every shape of an object that makes pods."""
    template = {"spec": pod()["spec"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "vision"}}
    yield "job of two billion", job | {"spec": {"parallelism": 2**31 - 1, "template": template}}
    yield "job, unread lists", job | {"spec": {"template": template, "unknown": [[]] * (size // 4)}}
    sets = filled(size, lambda n: {"name": f"r{n}", "replicas": 1, "template": {"spec": {"template": template}}})
    few = [
        {
            "name": f"r{n}",
            "replicas": 10**6,
            "template": {"spec": {"template": {"spec": pod({"nodeSelector": {"a": f"{n}"}})["spec"]}}},
        }
        for n in range(32)
    ]
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}}
    yield "replicated jobs", jobset | {"spec": {"replicatedJobs": sets}}
    yield "replicated jobs, few", jobset | {"spec": {"replicatedJobs": few}}
    yield "unknown kind", {"apiVersion": "example.com/v1", "kind": "Foo", "spec": {"a": [[]] * (size // 4)}}


def merged(several: list[Json]) -> Json:
    """Put shapes into one pod; of shapes that set the same field the last one wins."""
    made: Json = {}
    for each in several:
        _merge(made, json.loads(json.dumps(each)))
    return made


def _merge(into: Json, more: Json) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
