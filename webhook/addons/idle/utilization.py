"""Reads the utilization of GPUs from a Prometheus: one query for each metric and round, never one for each pod.

Only series with the labels that policy names count: everything that a cluster scrapes is in the same database, and a
tenant may export metrics of any name.
"""

import asyncio
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from webhook import __version__
from webhook.addons.idle.judge import GpuSeries, gpu_series
from webhook.core.model.amounts import printable, shortened
from webhook.core.model.policy_addons import UtilizationMetric, UtilizationSource

SECONDS: Final = 10.0
"""How long a query may take: a round that has no answer is a gap."""

LATE_SECONDS: Final = 120
"""By how much the time of an answer may differ from this process's: an older one is of a cache or of a wrong clock."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest answer: 200 bytes a GPU, so about 300,000 GPUs."""

MAX_TOKEN_BYTES: Final = 64 * 1024
_MAX_TEXT: Final = 200
_HEADERS: Final = {"Accept": "application/json", "User-Agent": f"fairgate/{__version__}"}


class UtilizationError(Exception):
    """Utilization cannot be read; the text says why, and names no secret."""


class _Sample(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True):
    result: list[_Sample] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _Data = _Data()


_decoder: Final = msgspec.json.Decoder(_Answer)


async def read_utilization(source: UtilizationSource, *, now: float) -> list[GpuSeries]:
    """Return the utilization of all GPUs, by each metric; `now` is in seconds of Unix time.

    Raises UtilizationError if any of the queries fails: what is missing would look like GPUs without use.
    """
    tls, headers = await asyncio.to_thread(_credentials, source)
    limits = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=limits, trust_env=False) as session:
        found: list[GpuSeries] = []
        for metric in source.metrics:
            body = await _ask(session, source, query_of(metric, source), tls)
            found += await asyncio.to_thread(_series, body, metric, source, now)
    return found


def query_of(metric: UtilizationMetric, source: UtilizationSource) -> str:
    """Return a query of the highest value of each GPU in the last two intervals: no use between two scrapes is missed.

    The labels are those that are read, so that an answer has one short series for each GPU.
    """
    matchers = ",".join(f"{name}={_quoted(value)}" for name, value in source.series)
    seconds = 2 * source.interval_seconds
    return f"max by ({', '.join(source.labels.all)}) (max_over_time({metric.name}{{{matchers}}}[{seconds}s]))"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _credentials(source: UtilizationSource) -> tuple[ssl.SSLContext | bool, dict[str, str]]:
    try:
        tls = _tls(source.ca_file) if source.ca_file else True
        token = _token(Path(source.token_file)) if source.token_file else ""
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UtilizationError(f"its CA or token cannot be read: {error}") from error
    return tls, {**_HEADERS, **({"Authorization": f"Bearer {token}"} if token else {})}


def _tls(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # CAs of clusters lack extensions that Python 3.13 wants
    return context


def _token(path: Path) -> str:
    with path.open("rb") as file:
        token = file.read(MAX_TOKEN_BYTES).decode("ascii", errors="replace").strip()
    if not token or not token.isprintable() or not token.isascii():
        raise ValueError(f"{path} has no token")
    return token


async def _ask(
    session: aiohttp.ClientSession, source: UtilizationSource, query: str, tls: ssl.SSLContext | bool
) -> bytes:
    url = f"{source.url}/api/v1/query"
    try:
        # No redirects: one would send the token to another host.
        async with session.post(url, data={"query": query}, ssl=tls, allow_redirects=False) as response:
            body = await _bounded(response)
            if response.status != HTTPStatus.OK:
                raise UtilizationError(f"it answered {response.status}: {_why(body)}")
            return body
    except TimeoutError as cause:
        raise UtilizationError(f"it did not answer within {SECONDS:g} s") from cause
    except (aiohttp.ClientError, OSError, RuntimeError) as cause:  # RuntimeError: aio-libs/aiohttp#12336, by uvloop
        raise UtilizationError(f"it cannot be reached: {shortened(str(cause), _MAX_TEXT)}") from cause


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_BYTES:
            raise UtilizationError(f"its answer is longer than {MAX_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _why(body: bytes) -> str:
    try:
        text = _decoder.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = ""
    return printable(shortened(text or "without a reason", _MAX_TEXT))


def _series(body: bytes, metric: UtilizationMetric, source: UtilizationSource, now: float) -> list[GpuSeries]:
    """Return the series of an answer; runs in a thread."""
    try:
        answer = _decoder.decode(body)
        samples = [(each.metric, each.value[0], float(each.value[1])) for each in answer.data.result]
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise UtilizationError("its answer is not one of Prometheus' HTTP API") from error
    if answer.status != "success":
        raise UtilizationError(f"the query failed: {_why(body)}")
    if late := next((at for _, at, _ in samples if abs(at - now) > LATE_SECONDS), None):
        raise UtilizationError(f"its answer is {abs(late - now):.0f} s away from now: it is late, or a clock is wrong")
    found = (gpu_series(labels, value, metric, source.labels) for labels, _, value in samples)
    return [each for each in found if each is not None]
