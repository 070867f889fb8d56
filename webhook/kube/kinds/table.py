"""All kinds of workloads, the small ones among them.

NVIDIA Dynamo: the components of an inference graph, each a number of replicas of one or several nodes.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from webhook.core.model.policy import WorkloadKind
from webhook.core.reclaim.victims import Loss
from webhook.kube.kinds import argo, clusters, inference, kubernetes, path_kinds, serving, tekton, training
from webhook.kube.kinds.gpu_requests import merge_container, merge_spec
from webhook.kube.kinds.kind_row import REPLICA_SET, STATEFUL_SET, KindTable, PodsFound, ReadContext, Row
from webhook.kube.kinds.model import (
    ONE,
    Budget,
    ControllerKind,
    Count,
    Json,
    Pods,
    count_at,
    dig,
    entries,
    listed,
    mapping,
    requested,
    text,
    unknown_pods,
)
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.objects import is_plain

_MAIN: Final = "main"
_GPU: Final = "nvidia.com/gpu"
"""The resource of `gpu` where `gpuType` does not name another one."""
_TEMPLATE_STEPS: Final = 40
"""Steps of reading a component and making its template."""


def graph_deployment(document: Json, context: ReadContext) -> PodsFound:
    """Read a DynamoGraphDeployment: `services` by name in v1alpha1, a list of `components` in v1beta1."""
    each = "spec.components" if isinstance(dig(document, "spec.components"), list) else "spec.services"
    found = [(role, where, mapping(component)) for role, where, component in entries(document, each, context.budget)]
    pods = tuple(_component_pods(role, where, component, context.budget) for role, where, component in found)
    scaled = [role for role, _, component in found if isinstance(component.get("scalingAdapter"), dict)]
    context.budget.write(sum(map(len, scaled)))
    return PodsFound(pods, (f"an autoscaler may change replicas of {', '.join(scaled)}",) if scaled else ())


def component_deployment(document: Json, context: ReadContext) -> PodsFound:
    """Read a DynamoComponentDeployment: one component."""
    return PodsFound((_component_pods("", "spec.", mapping(document.get("spec")), context.budget),))


def _component_pods(role: str, where: str, component: Json, budget: Budget) -> Pods:
    count = count_at(component, "replicas", default=1, named=f"{where}replicas")
    if dig(component, "autoscaling.enabled") is True:
        named = f"{where}autoscaling.maxReplicas"
        count = count.at_least(count_at(component, "autoscaling.maxReplicas", default=None, named=named))
    nodes = Count(1)
    if isinstance(component.get("multinode"), dict):
        nodes = count_at(component, "multinode.nodeCount", default=2, named=f"{where}multinode.nodeCount")
    if isinstance(component.get("podTemplate"), dict):
        return Pods(role, count.times(nodes), mapping(component["podTemplate"]))
    return Pods(role, count.times(nodes), _template(component, budget))


def _template(component: Json, budget: Budget) -> Json:
    """Return the pod template of a v1alpha1 component: its resources in the main container."""
    budget.step(_TEMPLATE_STEPS)
    given = mapping(component.get("extraPodSpec"))
    main = {**mapping(given.get("mainContainer")), "name": _MAIN}
    resources = requested(mapping(component.get("resources")), _GPU, budget)
    main = {**main, **merge_container(main, {"resources": resources}, budget)}
    spec = {key: value for key, value in given.items() if key not in ("mainContainer", "containers")}
    extra = mapping(component.get("extraPodMetadata"))
    metadata = merge_spec(
        {key: mapping(component.get(key)) for key in ("labels", "annotations")},
        {key: mapping(extra.get(key)) for key in ("labels", "annotations")},
        budget,
    )
    return {"metadata": metadata, "spec": {**spec, "containers": [main, *listed(given.get("containers"))]}}


_VERSIONS: Final = ("v1alpha1", "v1beta1")
_DYNAMO_LABELS: Final = {"nvidia.com/dynamo-component": "{role}"}

DYNAMO_ROWS: Final = (
    Row(
        WorkloadKind("nvidia.com", "DynamoGraphDeployment", "dynamographdeployments"),
        _VERSIONS,
        "each of `spec.services` or `spec.components`: `replicas` (1) times `multinode.nodeCount` (1)",
        graph_deployment,
        REPLICA_SET,
        {**_DYNAMO_LABELS, "nvidia.com/dynamo-graph-deployment-name": "{name}"},
    ),
    Row(
        WorkloadKind("nvidia.com", "DynamoComponentDeployment", "dynamocomponentdeployments"),
        _VERSIONS,
        "`spec.replicas` (1) times `spec.multinode.nodeCount` (1)",
        component_deployment,
        REPLICA_SET,
    ),
)


# KubeVirt: each virtual machine that runs is one pod, with the devices that are passed through to it.


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
    return PodsFound((_machine_pods(spec, count, context),), (_STOPPED,) if is_stopped else ())


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
    return PodsFound((_machine_pods(mapping(dig(document, "spec.virtualMachineTemplate.spec")), count, context),))


def _machine_pods(spec: Json, count: Count, context: ReadContext) -> Pods:
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


_MACHINE_LABELS: Final = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "{name}"}

KUBEVIRT_ROWS: Final = (
    Row(
        WorkloadKind("kubevirt.io", "VirtualMachine", "virtualmachines"),
        ("v1", "v1alpha3"),
        "1, or 0 while it is stopped, with a device for each of `devices.gpus` and `devices.hostDevices`; an instance "
        "type that may have GPUs must be given too",
        virtual_machine,
        _MACHINE,
        _MACHINE_LABELS,
    ),
    Row(
        WorkloadKind("kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances"),
        ("v1", "v1alpha3"),
        "1",
        machine_instance,
        labels=_MACHINE_LABELS,
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


# Seldon's kinds: SeldonDeployment of Core 1; Server and Model of Core 2.


def seldon_deployment(document: Json, context: ReadContext) -> PodsFound:
    """Read a SeldonDeployment: the component specs of each predictor."""
    top = count_at(document, "spec.replicas", default=1)
    pods: list[Pods] = []
    for name, where, predictor in entries(document, "spec.predictors", context.budget):
        replicas = count_at(predictor, "replicas", default=top.number, named=f"{where}replicas")
        specs = list(entries(mapping(predictor), "componentSpecs", context.budget))
        if not specs:
            problem = f"{where}componentSpecs is not set: a prepackaged server's pod is configured elsewhere"
            pods.append(unknown_pods(problem, role=name))
        for index, (_, below, part) in enumerate(specs):
            role = name if len(specs) == 1 else f"{name}-{index}"
            pods.append(Pods(role, _scaled(mapping(part), replicas, f"{where}{below}"), mapping(part)))
    return PodsFound(tuple(pods))


def _scaled(part: Json, replicas: Count, where: str) -> Count:
    count = count_at(part, "replicas", default=replicas.number, named=f"{where}replicas")
    for path in ("hpaSpec.maxReplicas", "kedaSpec.maxReplicaCount"):
        if dig(part, path) is not None:
            count = count.at_least(count_at(part, path, default=None, named=f"{where}{path}"))
    return count


def server(document: Json, context: ReadContext) -> PodsFound:
    """Read a Server: the pod spec of its ServerConfig, merged with its own."""
    replicas = count_at(document, "spec.replicas", default=1)
    maximum = count_at(document, "spec.maxReplicas", default=replicas.number)
    name = text(dig(document, "spec.serverConfig"))
    config = context.find("ServerConfig", name)
    if config is None:
        problem = f"its ServerConfig {name or 'without a name'} was not provided: add it to the input"
        return PodsFound((unknown_pods(problem),))
    spec = merge_spec(mapping(dig(config, "spec.podSpec")), mapping(dig(document, "spec.podSpec")), context.budget)
    return PodsFound((Pods("", replicas.at_least(maximum), {"spec": spec}),))


def model(_document: Json, _context: ReadContext) -> PodsFound:
    """Read a Model, which creates no pods."""
    return PodsFound((), ("creates no pods: a Server loads it",))


SELDON_ROWS: Final = (
    Row(
        WorkloadKind("machinelearning.seldon.io", "SeldonDeployment", "seldondeployments"),
        ("v1",),
        "each of `componentSpecs`: `replicas` of its own, the predictor or the whole (1), or its autoscaler's maximum",
        seldon_deployment,
        REPLICA_SET,
        {"seldon-deployment-id": "{name}"},
    ),
    Row(
        WorkloadKind("mlops.seldon.io", "Server", "servers"),
        ("v1alpha1",),
        "`spec.replicas` (1), or `spec.maxReplicas`; its ServerConfig must be given too",
        server,
        STATEFUL_SET,
    ),
    Row(
        WorkloadKind("mlops.seldon.io", "Model", "models"),
        ("v1alpha1",),
        "none: a Server loads it",
        model,
        is_judged=False,
    ),
)


# All kinds, by their rows: each row is beside the functions that read objects of its kind.


BUILT_IN: Final[tuple[Row, ...]] = (
    *kubernetes.APP_ROWS,
    *kubernetes.BATCH_ROWS,
    *training.KUBEFLOW_ROWS,
    *training.TRAIN_JOB_ROWS,
    *clusters.RAY_ROWS,
    *argo.ROWS,
    *clusters.SPARK_ROWS,
    *serving.ROWS,
    *SELDON_ROWS,
    *inference.ROWS,
    *path_kinds.ROWS,
    *DYNAMO_ROWS,
    *tekton.ROWS,
    *KUBEVIRT_ROWS,
    *training.POD_GROUP_ROWS,
)

BY_KIND: Final[KindTable] = {(row.kind.group, row.kind.kind): row for row in BUILT_IN}


def kind_table(added: tuple[WorkloadKind, ...] = ()) -> KindTable:
    """Return a table of the built-in kinds and those of the policy, which take precedence."""
    return {**BY_KIND, **{(kind.group, kind.kind): _of_policy(kind) for kind in added}}


def _of_policy(kind: WorkloadKind) -> Row:
    known = BY_KIND.get((kind.group, kind.kind))
    return Row(kind, ("*",), "as policy says", is_judged=known is None or known.is_judged)


# What is known of the controllers of pods, by their kind: the effect of evictions, their path, whether they retry.


def loss_of(api_version: str, kind: str, labels: Mapping[str, str]) -> Loss:
    """Return the effect of a pod's eviction on its controller; `labels` are the pod's."""
    row = _row(api_version, kind)
    return Loss.COUNTED if row is None else row.loss(labels)


def is_retried(api_version: str, kind: str) -> bool:
    """Whether a controller tries again after any change of its object: within 0.2 s, Jobs within 1.2 s (measured)."""
    row = _row(api_version, kind)
    return row is not None and row.is_retried


def path_of(ref: ObjectRef) -> str | None:
    """Return the API path of an object that other controllers create; None for any other kind: RBAC allows no others.

    Only their owners are looked up.
    """
    group, _, version = ref.api_version.rpartition("/")
    row = _row(ref.api_version, ref.kind)
    if row is None or not row.is_intermediate or not (is_plain(version) and is_plain(ref.name)):
        return None
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{base}/namespaces/{ref.namespace}/{row.kind.resource}/{ref.name}"


def _row(api_version: str, kind: str) -> Row | None:
    return BY_KIND.get((api_version.rpartition("/")[0], kind))
