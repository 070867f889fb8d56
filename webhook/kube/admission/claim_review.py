"""AdmissionReviews of ResourceClaims to which kube-scheduler allocates devices."""

from typing import Final, NamedTuple

import msgspec

from webhook.core.admission.claim_allocation import Allocation
from webhook.core.model.names import Namespace, Uid
from webhook.kube.admission.object_review import ObjectReview, read_request
from webhook.kube.admission.review import NO_USER, Operation, RequestFields
from webhook.kube.objects import bounds
from webhook.kube.pod import dra

_PODS: Final = "pods"


class ClaimReview(NamedTuple):
    """A review of a claim; `allocation` is None if it is allocated no devices."""

    uid: str
    operation: Operation
    namespace: Namespace
    name: str
    dry_run: bool
    username: str
    allocation: Allocation | None


class _Request(RequestFields, frozen=True, gc=False, rename="camel"):
    object: dra.ResourceClaim | None = None


_decoder: Final = msgspec.json.Decoder(ObjectReview[_Request])


def decode_claim(body: bytes) -> ClaimReview:
    """Decode a review of a claim.

    Raises ReviewError, with what was expected, if the body is not one, and TooLargeError if the claim is too large.
    """
    request = read_request(
        body,
        _decoder,
        title="AdmissionReview of a ResourceClaim",
        owner="every ResourceClaim",
        checked_from=bounds.LABEL_BYTES,
    )
    claim, user = request.object, request.user_info or NO_USER
    return ClaimReview(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name or ("" if claim is None else claim.metadata.name),
        dry_run=bool(request.dry_run),
        username=user.username,
        allocation=None if claim is None else _allocation(claim, request.namespace),
    )


def _allocation(claim: dra.ResourceClaim, namespace: Namespace) -> Allocation | None:
    allocated = dra.allocated(claim)
    if allocated is None:
        return None
    reserved = (claim.status.reserved_for if claim.status is not None else None) or ()
    key = dra.claim_key(claim.metadata)
    return Allocation(
        key=key._replace(namespace=namespace),
        uid=claim.metadata.uid,
        devices=allocated,
        pods=tuple(Uid(each.uid) for each in reserved if each.resource == _PODS),
        made_for=dra.made_for(claim),
    )
