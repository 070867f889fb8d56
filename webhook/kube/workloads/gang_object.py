"""Where the object is that says how many pods a gang has: the one that makes them, or their PodGroup."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.model.names import GangId
from webhook.core.model.pod import Pod
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.objects.owners import is_plain
from webhook.kube.pod.gangs import marker_of


class GangObject(NamedTuple):
    """An object to read: the row of its kind, its name, and the paths where it may be, by API version.

    `uid` is set where the gang is that of one object, not of all that had its name.
    """

    row: Row
    name: str
    paths: tuple[str, ...]
    uid: str = ""

    @property
    def kind(self) -> str:
        """Its kind, for messages."""
        return self.row.kind.kind


_BY_MARKER: Final[dict[str, list[Row]]] = {
    marker: [row for row in BUILT_IN if row.gang.marker == marker]
    for marker in {row.gang.marker for row in BUILT_IN} - {""}
}
_BY_CONTROLLER: Final = {row.kind.kind: row for row in BUILT_IN if row.gang.of_controller}


def gang_object(pod: Pod, gang: GangId) -> GangObject | None:
    """Return the object that describes the gang of a pod; None where there is none, or none that Fairgate reads.

    It is in the pod's own namespace, whatever the pod claims.
    """
    key, name = marker_of(gang, pod.namespace)
    owner, uid = pod.owner, ""
    made_by = "" if owner is None else owner.kind
    if key in _BY_MARKER:
        rows = (row for row in _BY_MARKER[key] if not row.gang.makers or made_by in row.gang.makers)
        row = next(rows, None)
        if row is not None and row.gang.name_label:
            name = pod.labels.get(row.gang.name_label, "")
    elif owner is not None and made_by == key:
        row, name, uid = _BY_CONTROLLER.get(key), owner.name, name
    else:
        row = None
    if row is None or not is_plain(name):
        return None
    return GangObject(row, name, tuple(paths_of(row, pod.namespace, name)), uid)


def paths_of(row: Row, namespace: str, name: str) -> Iterator[str]:
    """Yield the path of an object in each version of its kind, the newest first."""
    base = f"/apis/{row.kind.group}" if row.kind.group else "/api"
    for version in reversed(row.versions):
        yield f"{base}/{version}/namespaces/{namespace}/{row.kind.resource}/{name}"
