"""On what terms a pod runs. Never "QoS class": Kubernetes uses that word for something else."""

from enum import StrEnum


class Tier(StrEnum):
    """Guaranteed pods are inside their team's share; preemptible ones borrow GPUs that would idle."""

    GUARANTEED = "guaranteed"
    PREEMPTIBLE = "preemptible"
