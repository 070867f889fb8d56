"""Objects of kinds that are not described: those that ask for GPUs, or have containers, are unknown."""

from typing import Final

from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.gpu_requests import requests_in
from webhook.kube.kinds.model import Json, Unknown
from webhook.kube.objects.bounds import shortened

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
