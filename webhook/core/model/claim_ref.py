"""What a pod says of its ResourceClaims."""

from typing import NamedTuple


class ClaimRef(NamedTuple):
    """A pod's entry in spec.resourceClaims: the claim, as far as it exists, and the template it is made from.

    `group` is the pod's PodGroup, which may have one claim for all of its pods that have the same entry.
    """

    claim: str = ""
    template: str = ""
    group: str = ""
    entry: str = ""
