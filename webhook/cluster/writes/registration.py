"""Writes certificates to a Secret, and the registration on the API.

Certificates on the API: the Secret that holds them, and the webhook configurations that trust them; both watched.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from certs.manager import Published, StoreError
from webhook.cluster.api.client import AnyObject, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import read
from webhook.cluster.watch.event_stream import DEFAULT_PACE, Pace
from webhook.cluster.watch.watch import Watch
from webhook.kube.objects.keys import REGISTRATION_API
from webhook.kube.objects.objects import files_of, new_secret, with_files
from webhook.kube.registration.inventory import (
    BINDING,
    PLURALS,
    aligned_with_policy,
    fail_open_webhooks,
    probe_path,
)
from webhook.kube.registration.registration import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION, with_ca_bundles
from webhook.kube.watched.kinds import WatchedKind

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
        return await _write_secret(self._connection, "POST", self.collection, body, "create secrets")

    async def replace(self, files: Mapping[str, bytes]) -> bool:
        """Replace the files; False: another process wrote since the last read. Raises StoreError."""
        path = f"{self.collection}/{self.key}"
        return await _write_secret(self._connection, "PUT", path, with_files(self._last, files), "update secrets")


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
            is_changed |= await _write_secret(self._connection, "PUT", path, wanted, f"update {plural}")
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


async def _write_secret(connection: ApiConnection, method: str, path: str, body: _Json, action: str) -> bool:
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


# Updates Fairgate's registration on the API to match the policy. Never deletes it; creates what was there before.


PROBE_SECONDS: Final = 10.0
"""Timeout for the API server to reach a Service: longer than its timeout of a review."""

_METADATA: Final = ("labels", "annotations")
_CONTENT: Final = ("webhooks", "spec")
"""The parts of a registered object that are not metadata."""


class SyncResult(NamedTuple):
    """The objects that a sync changed, by name, as written, and the webhooks that fail open and should not.

    `probes` are the API server's proxy paths to these, for those that are called by a Service. `configurations` are
    the webhook configurations as found, by name; `missing` says of each other one that it is, and why it stays so.
    `unbound` says why the actions of guards may not be those of the policy.
    """

    changed: dict[str, _Json]
    open: tuple[str, ...]
    probes: tuple[str, ...]
    configurations: dict[str, _Json]
    missing: tuple[str, ...]
    unbound: tuple[str, ...] = ()


async def sync_registration(
    connection: ApiConnection,
    wanted: Sequence[_Json],
    *,
    is_served: bool,
    paused: Container[str] = (),
    deleted: Mapping[str, _Json] = MappingProxyType({}),
) -> SyncResult:
    """Update the objects that exist to match `wanted`, except those whose names are `paused`. Raises ClusterError.

    Webhook configurations that do not exist are created again as they were when they are in `deleted`.

    Webhooks are set to fail closed only if `is_served`: a server answers. A write carries the resourceVersion that was
    read; after a conflict, the next call reads again.
    """
    changed: dict[str, _Json] = {}
    still: list[_Json] = []
    present: dict[str, _Json] = {}
    missing: list[str] = []
    bindings = [each for each in wanted if each["kind"] == BINDING]
    for each in (each for each in wanted if each["kind"] != BINDING):
        found = await read(connection, _path(each), _OBJECT.decode, action=f"get {PLURALS[each['kind']]}")
        name = each["metadata"]["name"]
        if found is None:
            if "webhooks" not in each:
                continue
            why_not = await _create(connection, deleted[name], each) if name in deleted else ""
            if why_not is None:
                changed[name] = {"webhooks": deleted[name]["webhooks"]}
            else:
                missing.append(f"{each['kind']} {name} is missing{why_not}")
            continue
        if "webhooks" in each:
            present[name] = found
        adjusted = found if name in paused else aligned_with_policy(found, each, is_served=is_served)
        still += fail_open_webhooks(adjusted, each)
        if adjusted != found and await _write(connection, adjusted, each):
            changed[name] = {part: adjusted[part] for part in _CONTENT if part in adjusted}
    unbound = await _bind(connection, bindings, changed, paused=paused)
    probes = dict.fromkeys(filter(None, map(probe_path, still)))
    return SyncResult(changed, tuple(each["name"] for each in still), tuple(probes), present, tuple(missing), unbound)


async def _bind(
    connection: ApiConnection, bindings: Iterable[_Json], changed: dict[str, _Json], *, paused: Container[str]
) -> tuple[str, ...]:
    """Give guards the actions of the policy, and note what changed; return why that is not possible.

    The right to is another one than that to change guards: an installation may be without it. To change the binding of
    a guard with parameters the API server demands the right to list these, too, and answers 422 without.
    """
    unbound: list[str] = []
    for each in bindings:
        name = f"{each['metadata']['name']} (binding)"
        try:
            found = await read(connection, _path(each), _OBJECT.decode, action=f"get {PLURALS[BINDING]}")
            if found is None or name in paused:
                continue
            adjusted = aligned_with_policy(found, each, is_served=False)
            if adjusted != found and await _write(connection, adjusted, each):
                changed[name] = {"spec": adjusted["spec"]}
        except ApiError as error:
            if not error.is_refusal:
                raise
            unbound = unbound or [f"guards may not do what enforce says, apply `fairgate manifests` again: {error}"]
    return tuple(unbound)


async def why_unreachable(connection: ApiConnection, probes: Iterable[str]) -> str | None:
    """Have the API server call these paths; return why it cannot, None if it can or the request is forbidden."""
    for path in probes:
        try:
            await connection.send("GET", path, action="reach this server by its Service", seconds=PROBE_SECONDS)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                return f"the API server does not reach it: {error}"
        except ClusterError as error:
            return f"the API server does not reach it: {error}"
    return None


async def _write(connection: ApiConnection, adjusted: _Json, wanted: _Json) -> bool:
    """Return whether the write succeeded; False if the object was changed or deleted since it was read."""
    action = f"update {PLURALS[wanted['kind']]}"
    try:
        await connection.send("PUT", _path(wanted), msgspec.json.encode(adjusted), action=action)
    except ApiError as error:
        if error.is_missing or error.is_conflict:
            return False
        raise
    return True


async def _create(connection: ApiConnection, deleted: _Json, wanted: _Json) -> str | None:
    """Create an object as it was; return why it cannot be, None if it is there."""
    kept = {part: deleted["metadata"][part] for part in ("name", *_METADATA) if part in deleted["metadata"]}
    typed = {part: wanted[part] for part in ("apiVersion", "kind")}
    body = msgspec.json.encode({**deleted, **typed, "metadata": kept})
    path = _path(wanted).rpartition("/")[0]
    try:
        await connection.send("POST", path, body, action=f"create {PLURALS[wanted['kind']]}")
    except ApiError as error:
        return None if error.is_conflict else f": {error}"
    return None


def _path(wanted: _Json) -> str:
    return f"/apis/{REGISTRATION_API}/{PLURALS[wanted['kind']]}/{wanted['metadata']['name']}"
