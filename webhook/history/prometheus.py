"""Usage from a Prometheus that scrapes the replicas: the same rows as a history file, without users.

The counters are read at the end of each interval, for each replica by itself: a sum over replicas would count every pod
several times, and `increase` extrapolates.
"""

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.history.schema import HistoryError
from webhook.history.usage_row import INTERVAL_SECONDS, Kind, Recording, UsageKey, UsageRow
from webhook.observe.usage_metrics import GPU_SECONDS, OBSERVED, REFUSED, REFUSED_GPUS

TIMEOUT_SECONDS: Final = 60.0
_STEPS: Final = 2_000
"""Points of one query: Prometheus refuses more than 11,000."""
_LATE: Final = 1.2
"""A process observed no more than this part of its first interval; one with more has run for longer."""
_SHOWN: Final = 5
_OWN_LABELS: Final = frozenset({"__name__", "kind", "team", "department", "model"})
_KINDS: Final = {REFUSED: Kind.REFUSED, REFUSED_GPUS: Kind.REFUSED_GPUS, OBSERVED: Kind.OBSERVED}
_GPU_KINDS: Final = frozenset(Kind) - frozenset(_KINDS.values())

_Series = tuple[UsageKey, str]
"""The key and the department of a counter."""


@dataclass(slots=True)
class _Replica:
    """The counters of one replica at the end of each interval."""

    values: dict[int, dict[_Series, float]] = field(default_factory=dict)

    def rows(self) -> Iterator[UsageRow]:
        """Yield what the counters grew by in each interval."""
        last: dict[_Series, float] | None = None
        for end in sorted(self.values):
            found = self.values[end]
            observed = found.get(_OBSERVED, 0.0)
            if last is None and observed > _LATE * INTERVAL_SECONDS:
                last = found  # it has run for longer: what it counted before is not of this time
                continue
            if last is None or observed < last.get(_OBSERVED, 0.0):
                last = {}  # it has started since
            for series, value in found.items():
                if (amount := value - last.get(series, 0.0)) > 0:
                    yield UsageRow(end - INTERVAL_SECONDS, series[0], amount, series[1])
            last = last | found


_OBSERVED: Final = (UsageKey(Kind.OBSERVED), "")


def read_prometheus(url: str, since: int, until: int, *, matchers: str = "") -> list[Recording]:
    """Return what each replica counted between two starts of intervals. Raises HistoryError.

    `matchers` select the series of one cluster, such as `cluster="a"`.
    """
    replicas: dict[str, _Replica] = {}
    clusters: set[str] = set()
    for metric in (OBSERVED, GPU_SECONDS, REFUSED, REFUSED_GPUS):
        for labels, end, value in _values(url, f"{metric}_total{{{matchers}}}", since, until):
            clusters.add(labels.get("cluster", ""))
            series = _series(metric, labels)
            if series is not None:
                name = json.dumps({key: labels[key] for key in sorted(labels.keys() - _OWN_LABELS)})
                replicas.setdefault(name, _Replica()).values.setdefault(end, {})[series] = value
    if not replicas:
        raise HistoryError(
            f"{url} has no {OBSERVED}_total in this time: does it scrape Fairgate's servers, of a version that has it?"
        )
    if len(clusters) > 1:
        raise HistoryError(
            f"{url} has several clusters ({', '.join(sorted(clusters)[:_SHOWN])}): choose one, such as "
            f"""--match 'cluster="{min(clusters)}"'"""
        )
    return [
        Recording(name, tuple(row for row in replica.rows() if row.start >= since))
        for name, replica in sorted(replicas.items())
    ]


def _series(metric: str, labels: Mapping[str, str]) -> _Series | None:
    kind: Kind
    if metric == GPU_SECONDS:
        if labels.get("kind") not in _GPU_KINDS:
            return None
        kind = Kind(labels["kind"])
    else:
        kind = _KINDS[metric]
    return UsageKey(kind, labels.get("team", ""), "", labels.get("model", "")), labels.get("department", "")


def _values(url: str, metric: str, since: int, until: int) -> Iterator[tuple[dict[str, str], int, float]]:
    """Yield the labels, the time and the value of each counter, from one interval before the range on."""
    span = _STEPS * INTERVAL_SECONDS
    for start in range(since, until + 1, span):
        found = _get(
            url,
            query=f"last_over_time({metric}[{INTERVAL_SECONDS}s])",
            start=str(start),
            end=str(min(until, start + span - INTERVAL_SECONDS)),
            step=str(INTERVAL_SECONDS),
        )
        for series in found:
            labels = {str(key): str(value) for key, value in series["metric"].items()}
            for time, value in series["values"]:
                yield labels, int(time), float(value)


def _get(url: str, **parameters: str) -> list[Any]:
    """Send a range query and return its series. Raises HistoryError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HistoryError(f"{url!r} is no address of a Prometheus; expected one such as http://localhost:9090")
    where = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    request = urllib.request.Request(f"{where}/api/v1/query_range?{urllib.parse.urlencode(parameters)}")  # noqa: S310 - checked
    if parts.username:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - checked
            answer = json.load(response)
        series = [*answer["data"]["result"]]
    except urllib.error.HTTPError as error:
        raise HistoryError(f"{where} refused the query: {error.code} {_reason(error)}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise HistoryError(f"{where} cannot be read: {reason}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HistoryError(f"{where} does not answer as a Prometheus does: give its base URL") from error
    return series


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])[:200]
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
