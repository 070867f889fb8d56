"""Autoscalers of nodes: what marks the nodes that they add and remove."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Autoscaler(StrEnum):
    """An autoscaler that a cluster can run."""

    KARPENTER = "Karpenter"
    CLUSTER_AUTOSCALER = "Cluster Autoscaler"


NODE_LABELS: Final[Mapping[Autoscaler, tuple[str, ...]]] = {
    Autoscaler.KARPENTER: ("karpenter.sh/nodepool",),
    Autoscaler.CLUSTER_AUTOSCALER: (
        "alpha.eksctl.io/nodegroup-name",
        "cloud.google.com/gke-nodepool",
        "doks.digitalocean.com/node-pool",
        "eks.amazonaws.com/nodegroup",
        "k8s.scaleway.com/pool-name",
        "kops.k8s.io/instancegroup",
        "kubernetes.azure.com/agentpool",
        "lke.linode.com/pool-id",
        "oci.oraclecloud.com/node-pool",
        "hcloud/node-group",
    ),
}
"""The labels of the nodes of each. Karpenter writes its own; Cluster Autoscaler writes none, so these are the labels by
which clouds and installers name node groups."""
