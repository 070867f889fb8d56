"""Trouble with certificates, the ledger, the policy and processes, from what the processes report. Pure."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from certs.pair import CertificateError, read_certificates, why_not_renewed
from webhook.kube.ledger.reports import SILENT_SECONDS, ReplicaReport, read_at
from webhook.notify.message import MAX_ITEMS, Severity, State, item

SETTLE_SECONDS: Final = 60.0
"""How long trouble must last: a process that starts, or drains, is not ready for a while."""


class _Trouble(NamedTuple):
    condition: str
    process: str
    text: str


_TITLES: Final = {
    "certificate": "a certificate is not usable, or not renewed",
    "ledger": "the ledger of GPUs is behind, or not available",
    "world": "a server does not see the cluster as it is",
    "policy": "an edit of the policy is not in force",
    "registration": "the webhook configurations do not match the policy",
    "election": "a process cannot take part in the election of a leader",
    "process": "a process no longer reports",
    "serving": "a server does not serve",
    "line": "pods in line that may start are not released",
}
"""The conditions, which are the subjects of messages, with a line for people."""


def trouble_states(replicas: Mapping[str, ReplicaReport], now: float) -> dict[str, State]:
    """Return the conditions that do not hold in some process; `now` is in seconds of Unix time."""
    found: dict[str, dict[str, str]] = {}
    for process, report in sorted(replicas.items()):
        for each in _troubles(process, report, now):
            found.setdefault(each.condition, {}).setdefault(each.process, each.text)
    return {
        condition: State(
            Severity.CRITICAL,
            _TITLES[condition],
            tuple(item(f"{process}: {text}") for process, text in list(by_process.items())[:MAX_ITEMS]),
            key=" ".join(by_process),
            settle_seconds=SETTLE_SECONDS,
        )
        for condition, by_process in found.items()
    }


def _troubles(process: str, report: ReplicaReport, now: float) -> Iterator[_Trouble]:
    at = read_at(report.at)
    if at is None or now - at > SILENT_SECONDS:
        yield _Trouble("process", process, f"its last report is of {report.at}")
        return
    for text in report.not_ready:
        condition, _, why = text.partition(": ")
        yield _Trouble(condition if condition in _TITLES else "serving", process, why)
    if why_late := _why_not_renewed(report.certificate, int(now) // 60 * 60):
        yield _Trouble("certificate", process, why_late)
    yield from (_Trouble("ledger", process, f"behind: {text}") for text in report.behind)
    if report.policy_problem:
        yield _Trouble("policy", process, report.policy_problem)
    if report.registration:
        yield _Trouble("registration", process, report.registration)
    if report.stalled:
        yield _Trouble("line", process, report.stalled)
    if report.election:
        yield _Trouble("election", process, report.election)


@lru_cache(maxsize=64)
def _why_not_renewed(pem: str, at: int) -> str | None:
    """Return why a certificate needs attention; nothing where the report has none. Each is parsed once a minute."""
    try:
        leaf = read_certificates(pem.encode(), name="its certificate")[0] if pem else None
    except CertificateError as error:
        return str(error)
    return why_not_renewed(leaf, datetime.fromtimestamp(at, UTC), name="its certificate") if leaf else None
