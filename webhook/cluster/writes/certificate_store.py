"""Certificates on the API: the Secret that holds them, and the webhook configurations that trust them; both watched."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from certs.manager import Published, StoreError
from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import read
from webhook.cluster.api.wire import AnyObject
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace
from webhook.cluster.watch.watch import Watch
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.kube.objects.secret import files_of, new_secret, with_files
from webhook.kube.registration.registration import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION, with_ca_bundles

_CONFIGURATIONS: Final = (
    ("mutatingwebhookconfigurations", MUTATING_CONFIGURATION),
    ("validatingwebhookconfigurations", VALIDATING_CONFIGURATION),
)
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_TRIES: Final = 4

_Json = dict[str, Any]
_OBJECT: Final = msgspec.json.Decoder(_Json)


class SecretStore:
    """Files in one Secret. A write carries the resourceVersion of the last read."""

    def __init__(self, connection: ApiConnection, *, namespace: str, name: str) -> None:
        self.name = f"Secret {namespace}/{name}"
        self.collection = f"/api/v1/namespaces/{namespace}/secrets"
        self.key = name
        self._connection = connection
        self._last: _Json = {}

    async def read(self) -> Mapping[str, bytes] | None:
        """Return all files, None if there is no such Secret. Raises StoreError."""
        found = await _read(self._connection, f"{self.collection}/{self.key}", "secrets")
        if found is None:
            return None
        self._last = found
        try:
            return files_of(found)
        except ValueError as exc:
            raise StoreError(f"{self.name} cannot be read: {exc}") from exc

    async def create(self, files: Mapping[str, bytes]) -> bool:
        """Create the Secret; False: another process created it first. Raises StoreError."""
        body = new_secret(self.key, files)
        return await _write(self._connection, "POST", self.collection, body, "create secrets")

    async def replace(self, files: Mapping[str, bytes]) -> bool:
        """Replace the files; False: another process wrote since the last read. Raises StoreError."""
        path = f"{self.collection}/{self.key}"
        return await _write(self._connection, "PUT", path, with_files(self._last, files), "update secrets")


class WebhookConfigurations:
    """Fairgate's webhook configurations, by which the API servers know what CAs to trust."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def publish(self, merge: Callable[[bytes], bytes]) -> Published:
        """Pass the caBundle of every webhook through `merge`, and write those that it changes.

        Raises StoreError.
        """
        results = [await self._update(plural, name, merge) for plural, name in _CONFIGURATIONS]
        return Published(
            registered=tuple(one.name for one in results if one.version),
            missing=tuple(one.name for one in results if not one.version),
            changed=tuple(one.name for one in results if one.is_changed),
            version=",".join(one.version for one in results),
        )

    async def _update(self, plural: str, name: str, merge: Callable[[bytes], bytes]) -> "_Updated":
        path = f"{_ADMISSION}/{plural}/{name}"
        is_changed = False
        for _ in range(_TRIES):
            found = await _read(self._connection, path, plural)
            if found is None:
                return _Updated(f"{plural}/{name}", "", is_changed=False)
            wanted = with_ca_bundles(found, merge)
            if wanted == found:
                return _Updated(f"{plural}/{name}", found["metadata"]["resourceVersion"], is_changed=is_changed)
            is_changed |= await _write(self._connection, "PUT", path, wanted, f"update {plural}")
        raise StoreError(f"cannot update {plural}/{name}: other writers keep changing it")


@dataclass(frozen=True, slots=True)
class _Updated:
    name: str
    version: str  # resourceVersion; "": no such object
    is_changed: bool


async def _read(connection: ApiConnection, path: str, plural: str) -> _Json | None:
    try:
        return await read(connection, path, _OBJECT.decode, action=f"get {plural}")
    except ClusterError as exc:
        raise StoreError(str(exc)) from exc


async def _write(connection: ApiConnection, method: str, path: str, body: _Json, action: str) -> bool:
    """Return whether the write succeeded; False: another process wrote first. Raises StoreError."""
    try:
        await connection.send(method, path, msgspec.json.encode(body), action=action)
    except ClusterError as exc:
        # A PUT to an object deleted since the read is a lost race, too. A POST gets 404 if the namespace is missing.
        if isinstance(exc, ApiError) and (exc.is_conflict or (exc.is_missing and method == "PUT")):
            return False
        raise StoreError(str(exc)) from exc
    return True


async def notify_on_changes(
    store: SecretStore, connection: ApiConnection, notify: Callable[[], None], *, pace: Pace = DEFAULT_PACE
) -> None:
    """Call `notify` on every change of the Secret or a configuration, until cancelled; it reads the change itself."""
    objects = [(store.collection, store.key), *((f"{_ADMISSION}/{plural}", name) for plural, name in _CONFIGURATIONS)]
    async with asyncio.TaskGroup() as group:
        for path, name in objects:
            group.create_task(Watch(connection, _single_object(path, name, notify), pace=pace).run())


def _single_object(path: str, name: str, notify: Callable[[], None]) -> WatchedKind[AnyObject]:
    def apply(_: AnyObject) -> bool:
        notify()
        return True

    return WatchedKind(
        name=path.rpartition("/")[2],
        path=path,
        params={"fieldSelector": f"metadata.name={name}"},
        item=AnyObject,
        key=lambda found: found.key,
        handle=lambda found: found.key,
        apply=apply,
        remove=lambda _: notify(),
    )
