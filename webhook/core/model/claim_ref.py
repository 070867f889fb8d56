"""References from pods to ResourceClaims."""

from typing import NamedTuple


class ClaimRef(NamedTuple):
    """An entry in a pod's spec.resourceClaims: the claim, where it exists, and the template it is created from.

    `group` is the pod's PodGroup, which may have one claim for all of its pods with the same entry.
    """

    claim: str = ""
    template: str = ""
    group: str = ""
    entry: str = ""
