"""Kinds by guess; quotas; scalers.

The minimums that elastic kinds state themselves: of the pods that one of their templates makes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.amounts import Namespace, ResourceName, WorkloadName
from webhook.core.model.demand import Weights
from webhook.core.model.gpu_shares import looks_like_gpu
from webhook.core.world.minimums import WHOLE
from webhook.kube.kinds.gpu_requests import requests_in
from webhook.kube.kinds.kind_row import is_number
from webhook.kube.kinds.model import Budget, Json, Unknown, dig, listed, mapping, text
from webhook.kube.objects import objects
from webhook.kube.objects.bounds import exact, shortened
from webhook.kube.pod.devices import PodGroup
from webhook.kube.pod.gangs import MAX_MINIMUM, MAX_NAME, group_of, name_of

_PYTORCH_WORKER: Final = ("spec", "pytorchReplicaSpecs", "Worker", "template")
_RAY_GROUPS: Final = "workerGroupSpecs"
_VOLCANO_JOB: Final = ("batch.volcano.sh", "Job")


def elastic_minimum(document: Json, template: Sequence[str | int]) -> int | None:
    """Return the least pods of the template at a path of an object; None where the object states none for it.

    A Job of Volcano states one for all of its tasks, a PyTorchJob with an elastic policy for its workers, and a
    RayCluster whose autoscaler runs one for each group of single hosts, also inside a RayJob or RayService: replicas of
    several hosts go together.
    """
    kind = (text(document.get("apiVersion")).partition("/")[0], text(document.get("kind")))
    if kind == ("kubeflow.org", "PyTorchJob") and tuple(template) == _PYTORCH_WORKER:
        least = dig(document, "spec.elasticPolicy.minReplicas")
        return least if is_number(least) else None
    if kind == _VOLCANO_JOB:
        least = dig(document, "spec.minAvailable")
        return least if is_number(least) and least else None
    if kind[0] != "ray.io" or _RAY_GROUPS not in template:
        return None
    place = template.index(_RAY_GROUPS)
    cluster = dig(document, ".".join(map(str, template[:place])))
    number = template[place + 1]
    groups = listed(mapping(cluster).get(_RAY_GROUPS))
    if mapping(cluster).get("enableInTreeAutoscaling") is not True or not isinstance(number, int):
        return None
    group = mapping(groups[number])
    least = group.get("minReplicas") or 0
    return least if is_number(least) and group.get("numOfHosts", 1) == 1 else None


def may_be_elastic(document: Json) -> bool:
    """Whether an object is of a kind that states minimums."""
    group, kind = text(document.get("apiVersion")).partition("/")[0], text(document.get("kind"))
    return kind == "PyTorchJob" or group == "ray.io" or (group, kind) == _VOLCANO_JOB


# ResourceQuotas as shares: the GPUs that each namespace may request, and the quota entries without a counterpart.


_REQUESTS: Final = "requests."
"""Quotas on extended resources have only the form `requests.NAME`."""


class QuotaShare(NamedTuple):
    """What a namespace's quotas allow, in GPU units; `left_out` has a message for each entry that is not included."""

    namespace: Namespace
    gpus: int
    left_out: tuple[str, ...]


def shares_of(found: Iterable[Mapping[str, Any]], weights: Weights) -> list[QuotaShare]:
    """Return the GPUs of each namespace with a GPU quota; of several quotas on one resource the smallest counts."""
    allowed: dict[Namespace, dict[ResourceName, Fraction]] = defaultdict(dict)
    left_out: dict[Namespace, list[str]] = defaultdict(list)
    for quota in found:
        metadata, spec = mapping(quota.get("metadata")), mapping(quota.get("spec"))
        namespace = Namespace(text(metadata.get("namespace")) or "default")
        for resource, amount in _amounts(mapping(spec.get("hard"))):
            why = _why_left_out(spec, resource, weights)
            if why:
                left_out[namespace].append(f"{namespace}/{text(metadata.get('name'))}: {resource}: {why}")
            elif weights.get(resource):
                allowed[namespace][resource] = min(amount, allowed[namespace].get(resource, amount))
    return [
        QuotaShare(
            namespace,
            int(sum(amount * weights[resource] for resource, amount in allowed[namespace].items())),
            tuple(left_out[namespace]),
        )
        for namespace in sorted({*allowed, *left_out})
    ]


def _amounts(hard: Mapping[str, Any]) -> Iterable[tuple[ResourceName, Fraction]]:
    for key, quantity in hard.items():
        yield ResourceName(key.removeprefix(_REQUESTS)), exact(quantity)


def _why_left_out(spec: Mapping[str, Any], resource: ResourceName, weights: Weights) -> str:
    """Return why an entry of a quota cannot be converted; empty if it can, or does not concern GPUs."""
    if weights.get(resource) and (spec.get("scopes") or spec.get("scopeSelector")):
        return "it applies to some pods only (scopes), and shares apply to all"
    if resource not in weights and looks_like_gpu(resource):
        return "set its weight in `resources` of the policy"
    return ""


# What says the least replicas of a workload that others made: HorizontalPodAutoscalers, and Kubernetes' PodGroups.
#
# A HorizontalPodAutoscaler may be one of KEDA or KServe. The pods of a PodGroup are a workload of their own.


SCALER_API: Final = "autoscaling/v2"
SCALERS: Final = "horizontalpodautoscalers"
KIND: Final = "HorizontalPodAutoscaler"


class _Target(msgspec.Struct, frozen=True, gc=False):
    kind: str
    name: str


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: _Target
    min_replicas: int | None = None


class Autoscaler(msgspec.Struct, frozen=True, gc=False):
    """A HorizontalPodAutoscaler."""

    metadata: objects.ObjectMeta
    spec: _Spec


class Scaling(NamedTuple):
    """A workload and the least replicas to which it is scaled. `is_gang`: they are of no use below that."""

    workload: WorkloadName
    minimum: int
    is_gang: bool = False


def scaling_of(found: Autoscaler) -> Scaling | None:
    """Return what an autoscaler says; None for names that no workload has. The API server's default minimum is 1."""
    target, least = found.spec.scale_target_ref, found.spec.min_replicas
    if max(len(target.kind), len(target.name)) > MAX_NAME:
        return None
    minimum = min(max(0, 1 if least is None else least), MAX_MINIMUM)
    return Scaling(name_of(found.metadata.namespace, target.kind, target.name), minimum)


def scaling_of_group(found: PodGroup) -> Scaling | None:
    """Return how many pods of a PodGroup must stay together; None for one whose pods are scheduled one by one.

    With disruption mode `all` that is all of them; the API server's default is `single`.
    """
    policy, mode = found.spec.scheduling_policy, found.spec.disruption_mode
    if policy is None or policy.gang is None:
        return None
    is_whole = mode is not None and mode.all is not None
    minimum = WHOLE if is_whole else min(max(0, policy.gang.min_count), MAX_MINIMUM)
    return Scaling(group_of(found.metadata.namespace or "default", found.metadata.name), minimum, is_gang=True)


# Objects of kinds that are not described: those that ask for GPUs, or have containers, are unknown.


_BUILT_IN_GROUPS: Final = frozenset({"", "apps", "batch", "autoscaling", "policy", "extensions"})
"""Built-in API groups, besides those under k8s.io: all their kinds that create pods are in the table."""

_WITHOUT_PODS: Final = frozenset(
    {
        # machines, and what makes them
        *("cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "machine.openshift.io", "metal3.io"),
        *("karpenter.sh", "karpenter.k8s.aws", "karpenter.azure.com", "karpenter.k8s.gcp", "autoscaling.x-k8s.io"),
        *("container.gcp.upbound.io", "eks.aws.upbound.io", "containerservice.azure.upbound.io"),
        *("container.cnrm.cloud.google.com", "eks.services.k8s.aws", "ec2.services.k8s.aws", "devices.harvesterhci.io"),
        # quotas, queues and priorities of schedulers
        *("kueue.x-k8s.io", "topology.kueue.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai"),
        *("scheduling.x-k8s.io", "scheduling.koordinator.sh"),
        # labels of nodes, policies, monitoring, networks
        *("nfd.k8s-sigs.io", "nfd.openshift.io", "topology.node.k8s.io", "kyverno.io", "policies.kyverno.io"),
        *("constraints.gatekeeper.sh", "templates.gatekeeper.sh", "mutations.gatekeeper.sh"),
        *("monitoring.coreos.com", "monitoring.rhobs", "grafana.integreatly.org", "operator.victoriametrics.com"),
        *("cert-manager.io", "networking.istio.io", "cilium.io", "gateway.networking.x-k8s.io"),
        # settings of platforms
        *("infrastructure.opendatahub.io", "dashboard.opendatahub.io", "config.openshift.io", "operator.openshift.io"),
        "instancetype.kubevirt.io",
    }
)
"""Groups whose kinds make no pods with GPUs, and some of which name GPUs for other reasons."""

_TEMPLATE_KINDS: Final = frozenset(
    {
        ("argoproj.io", "ClusterWorkflowTemplate"),
        ("argoproj.io", "WorkflowTemplate"),
        ("inference.llmaz.io", "BackendRuntime"),
        ("inference.llmkube.dev", "Model"),
        ("llmaz.io", "OpenModel"),
        ("mlops.seldon.io", "ServerConfig"),
        ("ome.io", "AcceleratorClass"),
        ("ome.io", "BaseModel"),
        ("ome.io", "ClusterBaseModel"),
        ("ome.io", "ClusterServingRuntime"),
        ("ome.io", "ServingRuntime"),
        ("serving.kserve.io", "ClusterServingRuntime"),
        ("serving.kserve.io", "LLMInferenceServiceConfig"),
        ("serving.kserve.io", "ServingRuntime"),
        ("tekton.dev", "ClusterTask"),
        ("tekton.dev", "Pipeline"),
        ("tekton.dev", "Task"),
        ("trainer.kubeflow.org", "ClusterTrainingRuntime"),
        ("trainer.kubeflow.org", "TrainingRuntime"),
        ("workloads.x-k8s.io", "ClusterEngineRuntimeProfile"),
    }
)
"""Kinds with templates for other kinds: they create no pods themselves."""

_SETTINGS: Final = frozenset(
    {
        ("apps.nvidia.com", "NIMCache"),
        ("kubeflow.org", "PodDefault"),
        ("kubeflow.org", "Profile"),
        ("nvidia.com", "ClusterPolicy"),
        ("nvidia.com", "NVIDIADriver"),
        ("kubevirt.io", "KubeVirt"),
        ("hco.kubevirt.io", "HyperConverged"),
        ("opendatahub.io", "OdhDashboardConfig"),
    }
)
"""Kinds that name GPUs, and whose own pods ask for none."""


_BY_OPERATOR: Final = frozenset(
    {
        ("apps.nvidia.com", "NemoCustomizer"),
        ("kaito.sh", "InferenceSet"),
        ("kaito.sh", "MultiRoleInference"),
        ("kaito.sh", "Workspace"),
        ("nvidia.com", "DynamoGraphDeploymentRequest"),
    }
)
"""Kinds whose pods run on GPUs, in a number that their operator knows."""


def unknown_kind(document: Json, group: str, kind: str, budget: Budget) -> Unknown | None:
    """Return Unknown for an object that is not in the table and asks for GPUs or has containers, else None.

    Raises BudgetSpentError.
    """
    if group in _BUILT_IN_GROUPS or group in _WITHOUT_PODS or (group, kind) in _TEMPLATE_KINDS | _SETTINGS:
        return None
    if group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"):
        return None
    found = requests_in(document, budget)
    if found.devices:
        problem = f"it asks for GPUs or other devices at {shortened(found.devices)}"
    elif (group, kind) in _BY_OPERATOR:
        problem = "its operator decides how many GPUs its pods request"
    elif found.containers:
        problem = f"it has containers at {shortened(found.containers)}"
    else:
        return None
    return Unknown(
        f"kind {shortened(kind)} of {shortened(group)} is not known, and {problem}; "
        "describe it in the policy under workloads.kinds, by its template or its resources"
    )
