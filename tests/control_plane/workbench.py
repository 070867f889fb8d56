"""Set-up and clean-up that most tests need of a control plane: nodes, namespaces, pods, waiting, cleaning up."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

from tests.control_plane import objects, waiting
from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import COMPONENTS

T = TypeVar("T")

RETRIES: Final = 5


def wait_for(
    control_plane: ControlPlane,
    predicate: Callable[[], T],
    *,
    what: str,
    timeout: float = 120,
    poll: float = waiting.POLL_SECONDS,
) -> T:
    """As `waiting.wait_for`; a failure shows every pod, its node and why it is not scheduled, and dead components."""
    return waiting.wait_for(predicate, what=what, timeout=timeout, poll=poll, describe=lambda: describe(control_plane))


def make_nodes(
    control_plane: ControlPlane,
    count: int,
    *,
    prefix: str = "node",
    gpus: int = 10,
    cpu: str = "64",
    memory: str = "512Gi",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    resources: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> list[str]:
    """Make nodes `<prefix>-0`, … and wait until they are Ready and have no taints but these; returns their names."""
    taints = [dict(taint) for taint in taints]
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        wanted = objects.node(
            name, gpus=gpus, cpu=cpu, memory=memory, labels=labels, taints=taints, resources=resources
        )
        control_plane.api.create("/api/v1/nodes", wanted)
    keys = {taint["key"] for taint in taints}

    def all_ready() -> bool:
        found = {node["metadata"]["name"]: node for node in control_plane.api.list("/api/v1/nodes")}
        waiting_for = [name for name in names if not _is_usable(found[name], taint_keys=keys)]
        assert not waiting_for, f"{len(waiting_for)} of {count} nodes are not usable, {waiting_for[0]} for one"
        return True

    wait_for(control_plane, all_ready, what=f"{count} nodes Ready and without other taints", timeout=timeout)
    return names


def _is_usable(node: Mapping[str, Any], *, taint_keys: set[str]) -> bool:
    conditions = {item["type"]: item["status"] for item in node.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and {t["key"] for t in node["spec"].get("taints", [])} == taint_keys


def make_namespace(
    control_plane: ControlPlane, name: str | None = None, *, labels: Mapping[str, str] | None = None
) -> str:
    """Make a namespace and wait for its default service account: before that the API server refuses every pod."""
    name = name or f"test-{secrets.token_hex(4)}"
    metadata = {"name": name, "labels": dict(labels or {})}
    control_plane.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    wait_for(
        control_plane,
        lambda: control_plane.api.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        what=f"the default service account of namespace {name}",
    )
    return name


def create_pod(control_plane: ControlPlane, namespace: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Create a pod through the API; an ApiError carries a webhook's refusal. A 429 is tried again, as clients do."""
    for _ in range(RETRIES):
        try:
            return control_plane.api.create(f"/api/v1/namespaces/{namespace}/pods", dict(pod))
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            time.sleep(error.body["details"]["retryAfterSeconds"])
    return control_plane.api.create(f"/api/v1/namespaces/{namespace}/pods", dict(pod))


def get_pod(control_plane: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    """Read a pod."""
    return control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")


def list_pods(control_plane: ControlPlane, namespace: str, **query: str) -> list[dict[str, Any]]:
    """The pods of a namespace; `labelSelector="a=b"` selects."""
    return control_plane.api.list(f"/api/v1/namespaces/{namespace}/pods", **query)


def wait_second_after(cluster: ControlPlane, at: str) -> None:
    """Wait for a later second than a time of an object: times of one second have no order."""
    wait_for(cluster, lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > at, what="a later second")


def wait_bound(control_plane: ControlPlane, namespace: str, name: str, *, timeout: float = 120) -> str:
    """Wait until the scheduler bound the pod and return the node's name."""
    return wait_for(
        control_plane,
        lambda: get_pod(control_plane, namespace, name)["spec"].get("nodeName"),
        what=f"pod {namespace}/{name} bound to a node",
        timeout=timeout,
    )


def wait_phase(
    control_plane: ControlPlane, namespace: str, name: str, phase: str, *, timeout: float = 60
) -> dict[str, Any]:
    """Wait until the pod is in a phase (Running, Succeeded, Failed) and return it."""

    def in_phase() -> dict[str, Any]:
        found = get_pod(control_plane, namespace, name)
        assert found["status"].get("phase") == phase, found["status"].get("phase")
        return found

    return wait_for(control_plane, in_phase, what=f"pod {namespace}/{name} {phase}", timeout=timeout)


def wait_unschedulable(control_plane: ControlPlane, namespace: str, name: str, *, timeout: float = 120) -> str:
    """Wait until the scheduler reports that it cannot place the pod, and return its message."""
    return wait_for(
        control_plane,
        lambda: unschedulable_message(get_pod(control_plane, namespace, name)),
        what=f"pod {namespace}/{name} found unschedulable",
        timeout=timeout,
    )


def unschedulable_message(pod: Mapping[str, Any]) -> str:
    """The scheduler's reason why the pod is not bound, or ""."""
    conditions = pod.get("status", {}).get("conditions", [])
    messages = [item.get("message", "") for item in conditions if item.get("reason") == "Unschedulable"]
    return messages[0] if messages else ""


def gpus_by_node(control_plane: ControlPlane) -> dict[str, int]:
    """The GPUs requested by the pods on each node."""
    used = {node["metadata"]["name"]: 0 for node in control_plane.api.list("/api/v1/nodes")}
    for pod in control_plane.api.list("/api/v1/pods"):
        name = pod["spec"].get("nodeName")
        if name in used and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            limits = (container["resources"].get("limits", {}) for container in pod["spec"]["containers"])
            used[name] += sum(int(limit.get(objects.GPU, 0)) for limit in limits)
    return used


def describe(control_plane: ControlPlane) -> str:
    """What `kubectl get pods -A` would show, and dead components, as lines."""
    running = control_plane.processes.pids()
    dead = [control_plane.processes.describe(name, "is not running") for name in COMPONENTS if name not in running]
    try:
        pods = control_plane.api.list("/api/v1/pods")
    except Exception as error:  # it is only part of a failure that is being raised
        return "\n".join([*dead, f"pods: {error!r}"])
    lines = (
        f"  {pod['metadata']['namespace']}/{pod['metadata']['name']}: {pod['status'].get('phase')}"
        f" on {pod['spec'].get('nodeName', 'no node')} {_why_pending(pod)}"
        for pod in itertools.islice(pods, 40)
    )
    return "\n".join([*dead, f"{len(pods)} pods:", *lines])


def _why_pending(pod: dict[str, Any]) -> str:
    """The gates of a pod, what it waits for, and what the scheduler says."""
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    waiting = pod["metadata"].get("annotations", {}).get("fairgate.dev/waiting", "")
    return " ".join(filter(None, (*gates, waiting, unschedulable_message(pod))))
