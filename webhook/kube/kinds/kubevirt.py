"""KubeVirt: each virtual machine that runs is one pod, with the devices that are passed through to it."""

import re
from collections import Counter
from typing import Any, Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.kind_row import PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Json, listed, mapping, text
from webhook.kube.kinds.paths import ONE, ControllerKind, Count, Pods, count_at, dig, unknown_pods

_STOPPED: Final = "stopped: its pod is created when it is started"
_CLUSTER_TYPE: Final = "VirtualMachineClusterInstancetype"
_NO_GPU_TYPES: Final = re.compile(r"(u1|o1|cx1|m1|n1|rt1|d1)\.[a-z0-9.]{1,20}")
"""The series of KubeVirt's own instance types: none has GPUs; gn1 of earlier releases had some."""
_MACHINE: Final = ControllerKind("kubevirt.io/v1", "VirtualMachineInstance")
_COPIED: Final = ("nodeSelector", "affinity", "tolerations", "schedulerName", "priorityClassName", "resourceClaims")


def virtual_machine(document: Json, context: ReadContext) -> PodsFound:
    """Read a VirtualMachine: one pod, or none while it is stopped."""
    spec = mapping(document.get("spec"))
    is_stopped = spec.get("running") is False or spec.get("runStrategy") == "Halted"
    if is_stopped and "runStrategy" in spec and "running" in spec:
        is_stopped = spec["runStrategy"] == "Halted"
    count = Count(0) if is_stopped else ONE
    return PodsFound((_pods(spec, count, context),), (_STOPPED,) if is_stopped else ())


def machine_instance(document: Json, context: ReadContext) -> PodsFound:
    """Read a VirtualMachineInstance."""
    return PodsFound((_machine({"metadata": {}, "spec": document.get("spec")}, {}, ONE, context.budget),))


def machine_set(document: Json, context: ReadContext) -> PodsFound:
    """Read a VirtualMachineInstanceReplicaSet."""
    template = mapping(dig(document, "spec.template"))
    return PodsFound((_machine(template, {}, count_at(document, "spec.replicas", default=1), context.budget),))


def machine_pool(document: Json, context: ReadContext) -> PodsFound:
    """Read a VirtualMachinePool."""
    count = count_at(document, "spec.replicas", default=1)
    return PodsFound((_pods(mapping(dig(document, "spec.virtualMachineTemplate.spec")), count, context),))


def _pods(spec: Json, count: Count, context: ReadContext) -> Pods:
    """Return the pods of a VirtualMachine's spec; its instance type may bring GPUs."""
    named = mapping(spec.get("instancetype"))
    name, kind = text(named.get("name")), text(named.get("kind")) or _CLUSTER_TYPE
    found: Json | None = None
    if named:
        found = context.find(kind, name, is_namespaced=kind.lower() != _CLUSTER_TYPE.lower())
        if found is None and not _NO_GPU_TYPES.fullmatch(name):
            return unknown_pods(f"its instance type, {kind} {name or 'without a name'}, was not provided: add it")
    return _machine(mapping(spec.get("template")), mapping(dig(found, "spec")), count, context.budget)


def _machine(template: Json, instance_type: Json, count: Count, budget: Budget) -> Pods:
    spec = mapping(template.get("spec"))
    domain = mapping(spec.get("domain"))
    resources = mapping(domain.get("resources"))
    devices = _devices(domain, instance_type)
    budget.step(len(devices))
    passed = Counter(name for each in devices if (name := text(each.get("deviceName"))))
    requests: dict[str, Any] = {**mapping(resources.get("requests")), **passed}
    memory = dig(domain, "memory.guest") or dig(instance_type, "memory.guest")
    if memory is not None:
        requests.setdefault("memory", memory)
    claims = [_claim(each) for each in devices if text(each.get("claimName"))]
    made = {"requests": requests, "limits": {**mapping(resources.get("limits")), **passed}, "claims": claims}
    pod = {key: spec[key] for key in _COPIED if spec.get(key)}
    containers = [{"name": "compute", "resources": made}]
    return Pods("", count, {"metadata": template.get("metadata"), "spec": {**pod, "containers": containers}})


def _claim(device: Json) -> Json:
    request = text(device.get("requestName"))
    return {"name": device["claimName"], **({"request": request} if request else {})}


def _devices(domain: Json, instance_type: Json) -> list[Json]:
    places = (mapping(domain.get("devices")), instance_type)
    return [mapping(each) for place in places for key in ("gpus", "hostDevices") for each in listed(place.get(key))]


_LABELS: Final = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "{name}"}

ROWS: Final = (
    Row(
        WorkloadKind("kubevirt.io", "VirtualMachine", "virtualmachines"),
        ("v1", "v1alpha3"),
        "1, or 0 while it is stopped, with a device for each of `devices.gpus` and `devices.hostDevices`; an instance "
        "type that may have GPUs must be given too",
        virtual_machine,
        _MACHINE,
        _LABELS,
    ),
    Row(
        WorkloadKind("kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances"),
        ("v1", "v1alpha3"),
        "1",
        machine_instance,
        labels=_LABELS,
    ),
    Row(
        WorkloadKind("kubevirt.io", "VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets"),
        ("v1", "v1alpha3"),
        "`spec.replicas` (1)",
        machine_set,
        _MACHINE,
        {"kubevirt.io": "virt-launcher"},
    ),
    Row(
        WorkloadKind("pool.kubevirt.io", "VirtualMachinePool", "virtualmachinepools"),
        ("v1alpha1", "v1beta1"),
        "`spec.replicas` (1), as a VirtualMachine",
        machine_pool,
        _MACHINE,
        {"kubevirt.io": "virt-launcher"},
    ),
)
