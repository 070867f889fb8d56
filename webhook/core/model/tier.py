"""On what terms a pod runs. Never "QoS class": Kubernetes uses that word for something else."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Tier(StrEnum):
    """Guaranteed pods are inside their team's share; preemptible ones borrow GPUs that would idle."""

    GUARANTEED = "guaranteed"
    PREEMPTIBLE = "preemptible"


TIERS: Final[Mapping[str, Tier]] = {tier.value: tier for tier in Tier}
"""Tiers by the text of their label."""
