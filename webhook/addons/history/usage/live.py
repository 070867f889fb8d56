"""Usage read from a live cluster.

Asks every server of a cluster for its record: through the API server's pod proxy, or at its own URL.
"""

import asyncio
import ssl
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Coroutine, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from webhook.addons.history import reader
from webhook.addons.history.meter import Recording
from webhook.addons.history.reader import By, Ratios, RecordedTrace, UsageSum
from webhook.addons.history.store import HistoryError
from webhook.addons.history.usage.report import UsageReport, time_text
from webhook.cli.world_source import default_kubeconfig
from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.writes.reports import read_report
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import UsagePeriod
from webhook.kube.objects import keys
from webhook.kube.objects.keys import AUDIENCE, READER, TOKEN_HEADER, TOKEN_SECONDS, USAGE_PATH
from webhook.kube.registration.inventory import path_of
from webhook.kube.registration.registration import VALIDATING_CONFIGURATION

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

SECONDS: Final = 60.0
_PORT: Final = 8443
_INSTEAD: Final = "docs/reference/rights.md#usage; or give --history"


class NotAllowedError(HistoryError):
    """The user may not read the history of the servers, or there is no account for its readers."""


def read_live(kubeconfig: Path | None, since: int, until: int) -> list[Recording]:
    """Return the records of all servers of a cluster. Raises HistoryError."""
    return _read_all(fetch_live(kubeconfig or default_kubeconfig(), since, until))


def read_pods(kubeconfig: Path | None, since: int, until: int) -> list[RecordedTrace]:
    """Return the pods that all servers of a cluster recorded. Raises HistoryError."""
    query = {"of": "pods", **_range(since, until)}
    return _read_all(_fetch(kubeconfig or default_kubeconfig(), query, reader.decode_trace))


def _read_all(reading: Coroutine[Any, Any, list[_T]]) -> list[_T]:
    try:
        return asyncio.run(reading)
    except ClusterError as error:
        is_refused = isinstance(error, ApiError) and (error.is_forbidden or error.is_missing)
        kind = NotAllowedError if is_refused else HistoryError
        raise kind(f"{error}; {_INSTEAD}") from error


async def fetch_live(kubeconfig: Path | None, since: int, until: int) -> list[Recording]:
    """Return the records of all servers, inside an event loop. Raises HistoryError, ClusterError."""
    return await _fetch(kubeconfig, _range(since, until), reader.decode)


def _range(since: int, until: int) -> dict[str, str]:
    return {"since": str(since), "until": str(min(until, int(time.time()) + 1))}


class _Decode(Protocol[_T_co]):
    def __call__(self, body: bytes, *, name: str) -> _T_co:
        """Return what a server answers. Raises HistoryError."""


async def _fetch(kubeconfig: Path | None, query: Mapping[str, str], decode: _Decode[_T]) -> list[_T]:
    async with await connect(kubeconfig) as connection:
        client = await _client(connection)
        service = client.get("service")
        namespace = service["namespace"] if service else await own_namespace(kubeconfig)
        token = await _token(connection, namespace)
        if not service:
            body, name = await _at_url(client, query, token)
            return [decode(body, name=name)]
        return [decode(body, name=name) async for body, name in _of_pods(connection, namespace, query, token)]


async def _client(connection: ApiConnection) -> Mapping[str, Any]:
    """Return how the API server reaches Fairgate."""
    path = path_of("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION)
    try:
        body = await connection.send("GET", path, action="get validatingwebhookconfigurations")
    except ApiError as error:
        if error.is_missing:
            raise HistoryError("Fairgate is not registered in this cluster") from error
        raise
    found: Mapping[str, Any] = msgspec.json.decode(body)["webhooks"][0]["clientConfig"]
    return found


async def _token(connection: ApiConnection, namespace: str) -> str:
    """Request a token that is good for reading usage alone."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{READER}/token"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS},
    }
    body = await connection.send("POST", path, msgspec.json.encode(request), action="create serviceaccounts/token")
    return str(msgspec.json.decode(body)["status"]["token"])


async def _of_pods(
    connection: ApiConnection, namespace: str, query: Mapping[str, str], token: str
) -> AsyncIterator[tuple[bytes, str]]:
    """Yield the answers of all running servers. Raises HistoryError if one cannot be read: its refusals would miss."""
    selector = ",".join(f"{key}={value}" for key, value in keys.OWN_LABELS)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    params = {"labelSelector": selector, "fieldSelector": "status.phase=Running"}
    listed = msgspec.json.decode(await connection.send("GET", pods, action="list pods", params=params))
    is_any = False
    for pod in listed.get("items") or ():
        name = pod["metadata"]["name"]
        path = f"{pods}/https:{name}:{_PORT}/proxy{USAGE_PATH}"
        try:
            body = await connection.send(
                "GET", path, action="get pods/proxy", params=query, seconds=SECONDS, header=(TOKEN_HEADER, token)
            )
        except ApiError as error:
            if error.is_forbidden:
                raise
            raise HistoryError(f"server {name} cannot be read, and without it refusals miss: {error}") from error
        is_any = True
        yield body, name
    if not is_any:
        raise HistoryError(f"no server runs in namespace {namespace}")


async def _at_url(client: Mapping[str, Any], query: Mapping[str, str], token: str) -> tuple[bytes, str]:
    """Return the answer of a server that is registered by its URL."""
    parts = urlsplit(client["url"])
    url = parts._replace(path=USAGE_PATH, query="").geturl()
    try:
        tls = ssl.create_default_context(cadata=_pem(client.get("caBundle") or ""))
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, params=query, headers={TOKEN_HEADER: token}, ssl=tls) as response,
        ):
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
        raise HistoryError(f"{url} cannot be read: {error or type(error).__name__}") from error
    if not response.ok:
        kind = NotAllowedError if response.status == HTTPStatus.FORBIDDEN else HistoryError
        raise kind(f"{url} answers {response.status}: {_text(body)}")
    return body, url


def _pem(bundle: str) -> str | None:
    return b64decode(bundle).decode("ascii") or None


def _text(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["error"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return "without a reason"


# The usage that the leader published, for people who may not read the history itself.


_DAY: Final = 86_400


def read_published(kubeconfig: Path | None, *, by: By, seconds: float) -> UsageReport:
    """Return the sums of teams of a period that ends now. Raises HistoryError if it is not published."""
    days = seconds / _DAY
    try:
        found = asyncio.run(_read(kubeconfig or default_kubeconfig()))
    except ClusterError as error:
        raise HistoryError(f"nor what the leader published: {error}") from error
    period = found.get(f"{days:g}")
    if by is not By.TEAM or period is None:
        known = ", ".join(f"--since {number}d" for number in found)
        raise HistoryError(f"published are the sums of teams alone: {known}" if found else "and no usage is published")
    teams = [UsageSum(**msgspec.structs.asdict(each)) for each in period.teams]
    total = UsageSum("total")
    for each in teams:
        _add(total, each)
    return UsageReport(
        since=time_text(period.since),
        until=time_text(period.until),
        by=by.value,
        hours=round((period.until - period.since) / 3600, 2),
        observed_hours=period.observed_hours,
        usage=teams,
        total=total.rounded(),
        ratios=Ratios(),
    )


async def _read(kubeconfig: Path | None) -> dict[str, UsagePeriod]:
    async with await connect(kubeconfig) as connection:
        usage = (await read_report(connection, reports.USAGE)).usage
        return {} if usage is None else usage.days


def _add(total: UsageSum, each: UsageSum) -> None:
    """Add the amounts of a team; the total's `idle` would be free GPUs, which are not published."""
    for name, amount in msgspec.structs.asdict(each).items():
        if name not in {"name", "idle"} and amount is not None:
            setattr(total, name, (getattr(total, name) or 0) + amount)
