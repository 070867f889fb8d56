"""ResourceQuotas on the API: watched, and read live before a pod is refused for one."""

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.watch.kinds import path_of, split_path
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace
from webhook.core.quota.resource_quotas import Quota, QuotaIndex
from webhook.kube.nodes.resource_quotas import PATH, ResourceQuota, decode_quotas, to_quota


def quota_kind(book: QuotaIndex) -> WatchedKind[ResourceQuota]:
    """Return the kind that keeps the quotas of a QuotaBook current, by namespace and name."""

    def apply(found: ResourceQuota) -> bool:
        quota = to_quota(found)
        if quota is not None:
            book.set(found.metadata.namespace, quota)
        return quota is not None

    return WatchedKind(
        name="resourcequotas",
        path=PATH,
        item=ResourceQuota,
        key=path_of,
        handle=path_of,
        apply=apply,
        remove=lambda path: book.remove(*split_path(path)),
    )


async def live_quotas(connection: ApiConnection, namespace: Namespace) -> list[Quota]:
    """Return the current quotas of a namespace. Raises ClusterError."""
    body = await connection.send("GET", f"/api/v1/namespaces/{namespace}/resourcequotas", action="list resourcequotas")
    try:
        return decode_quotas(body)
    except ValueError as cause:
        raise ClusterError(f"cannot list resourcequotas: the response is not a list of them: {cause}") from cause
