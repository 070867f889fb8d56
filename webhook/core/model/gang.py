"""A gang: pods that are of no use without each other, and start together or not at all."""

from typing import Final, NamedTuple

from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.names import GangId

MAX_MEMBERS: Final = 500
"""Most members that start together: their charges fit into one write of the ledger."""


class Gang(NamedTuple):
    """The gang of a pod, as the pod names it.

    `name` is for messages. `size` is the number of pods that it declares, 0 where it declares none. `is_requested`: by
    annotation, whatever the team's policy. `is_ordered`: some of its pods may be made only once others of them run,
    whatever size it declares. `is_described`: an object in the API says more than its pods do. `domain` is the domain
    that it asks for, None without a request. `is_pod_group`: it is a PodGroup of Kubernetes, whose pods kube-scheduler
    places together.
    """

    id: GangId
    name: str
    size: int = 0
    is_requested: bool = False
    is_ordered: bool = False
    is_described: bool = False
    domain: DomainRequest | None = None
    is_pod_group: bool = False
