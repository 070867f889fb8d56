"""What is known of the controllers of pods, by their kind: the effect of evictions, their path, whether they retry."""

from collections.abc import Mapping

from webhook.core.reclaim.failures import Loss
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.table import BY_KIND
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.owners import is_plain


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
