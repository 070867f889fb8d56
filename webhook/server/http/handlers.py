"""HTTP handlers: call the reviewer, respond, and record the decision once; probes and metrics.

Responses are JSON or plain text and never contain a traceback. The hot path is `Handlers.review`: no router, no
middleware, the body read once.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from webhook.core.model.policy import Enforcement
from webhook.kube.admission.review import ReviewError
from webhook.kube.registration.registration import (
    CLAIMS_PATH,
    GANGS_PATH,
    JOBS_PATH,
    MUTATE_PATH,
    VALIDATE_PATH,
    WORKLOADS_PATH,
)
from webhook.observe.decisions import Phase
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.server.http.bodies import BodyReader
from webhook.server.http.http_error import HttpError
from webhook.server.http.probes import Readiness
from webhook.server.http.reply import JSON, Reply
from webhook.server.http.request_target import RequestTarget
from webhook.server.review.answer import Answer, Record
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.settings import BODY_SECONDS

REVIEW_PATHS: Final = (MUTATE_PATH, VALIDATE_PATH, WORKLOADS_PATH, CLAIMS_PATH, JOBS_PATH, GANGS_PATH)
"""The paths of reviews."""

_OBJECT_PATHS: Final = frozenset({WORKLOADS_PATH, JOBS_PATH, GANGS_PATH})
"""The paths of objects that make pods: a tenant's may take 50 ms, so they take turns, and pods go first."""

_ENFORCE: Final = Enforcement.ENFORCE.value
_NOT_LOGGED: Final = frozenset({404, 405})
"""Statuses that scanners and typos cause: counted, but not logged."""


class Handlers:
    """The endpoints of one server."""

    def __init__(
        self,
        reviewer: AdmissionReviewer,
        *,
        readiness: Readiness,
        metrics: Metrics,
        logs: Logs,
        why_not_synced: Callable[[], str | None],
    ) -> None:
        self._readiness = readiness
        self._metrics = metrics
        self._logs = logs
        self._why_cold = why_not_synced
        self._bodies = BodyReader()
        self._clock = asyncio.get_running_loop().time
        self._validate = reviewer.validate
        self._reviews: dict[str, tuple[Phase, Callable[[bytes], Answer]]] = {
            MUTATE_PATH: (Phase.MUTATE, reviewer.mutate),
            WORKLOADS_PATH: (Phase.WORKLOADS, reviewer.workloads),
            CLAIMS_PATH: (Phase.CLAIMS, reviewer.claims),
            JOBS_PATH: (Phase.JOBS, reviewer.jobs),
            GANGS_PATH: (Phase.GANGS, reviewer.gangs),
        }

    def review(
        self, body: bytes, target: RequestTarget, *, arrived: float, is_gone: Callable[[], bool]
    ) -> Reply | Awaitable[Reply]:
        """Return the answer to a review that arrived at a time of the event loop. Raises HttpError.

        An answer that takes a charge is waited for; `is_gone` returns whether its caller left.
        """
        self._check_ready(target)
        if target.path in _OBJECT_PATHS:
            return self._review_object(body, target)
        return self._review(body, target, deadline=arrived + target.work_seconds, is_gone=is_gone)

    async def read_review(self, request: web.BaseRequest, target: RequestTarget) -> Reply:
        """Read a review's body, however large and slow within the bounds, and return the answer. Raises HttpError."""
        deadline = self._clock() + target.work_seconds
        self._check_ready(target)
        _check_headers(request)

        def is_gone() -> bool:
            return request.transport is None or request.transport.is_closing()

        body = await self._bodies.read(request, within_seconds=min(BODY_SECONDS, target.work_seconds))
        try:
            if target.path in _OBJECT_PATHS or body.is_large:
                await self._bodies.wait_turn()
            reply = self._review(body.text, target, deadline=deadline, is_gone=is_gone)
            return reply if isinstance(reply, Reply) else await reply
        finally:
            self._bodies.release(body)

    async def healthz(self, _request: web.BaseRequest, _target: RequestTarget) -> web.Response:
        """Handle GET /healthz: an event loop that runs this is alive."""
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.BaseRequest, _target: RequestTarget) -> web.Response:
        """Handle GET /readyz: 200 or 503, with every condition by name."""
        conditions = self._readiness.conditions()
        is_ready = all(condition.ok for condition in conditions.values())
        body = msgspec.json.encode({"ready": is_ready, "conditions": conditions}) + b"\n"
        return web.Response(body=body, status=200 if is_ready else 503, content_type=JSON)

    async def metrics(self, request: web.BaseRequest, _target: RequestTarget) -> web.Response:
        """Handle GET /metrics."""
        exposition = self._metrics.expose(request.headers.get("Accept", ""))
        body = bytearray()
        for piece in exposition.pieces:
            body += piece
            await asyncio.sleep(0)  # reviews have priority
        return web.Response(body=bytes(body), headers={"Content-Type": exposition.content_type})

    def http_error(self, error: HttpError, *, raw_target: str, remote: str | None) -> Reply:
        """Return the response of an error; count it and, except for 404 and 405, log it."""
        self._metrics.http_error(error.status)
        if error.status not in _NOT_LOGGED:
            self._logs.event.warning(
                "request refused",
                status=error.status,
                code=error.code,
                error=error.text,
                path=raw_target,
                remote=remote,
            )
        retry = {"Retry-After": str(error.retry_after_seconds)} if error.retry_after_seconds else {}
        return _error(error.status, {"error": error.text, "code": error.code}, retry)

    def bug(self, exc: Exception, *, raw_target: str, remote: str | None) -> Reply:
        """Log a bug with its traceback under a request id, and return only the id."""
        request_id = secrets.token_hex(8)
        self._metrics.http_error(500)
        self._logs.event.error("bug", request_id=request_id, path=raw_target, remote=remote, exc_info=exc)
        text = f"internal error; see request id {request_id} in the server's log"
        return _error(500, {"error": text, "code": "InternalError", "requestId": request_id}, {})

    def _check_ready(self, target: RequestTarget) -> None:
        if (why := self._why_cold()) is not None:
            raise HttpError(503, "NotReady", why, retry_after_seconds=1)
        if target.timeout_problem:
            raise HttpError(400, "InvalidTimeout", target.timeout_problem)

    def _review(
        self, body: bytes, target: RequestTarget, *, deadline: float, is_gone: Callable[[], bool]
    ) -> Reply | Awaitable[Reply]:
        if target.path == VALIDATE_PATH:
            return self._charge(body, deadline=deadline, is_gone=is_gone)
        phase, review = self._reviews[target.path]
        return self._answered(phase, review, body)

    def _answered(self, phase: Phase, review: Callable[[bytes], Answer], body: bytes) -> Reply:
        started = time.perf_counter()
        try:
            answer = review(body)
        except ReviewError as exc:
            raise _malformed(exc) from exc
        return self._recorded(phase, answer, started)

    async def _review_object(self, body: bytes, target: RequestTarget) -> Reply:
        await self._bodies.wait_turn()
        phase, review = self._reviews[target.path]
        return self._answered(phase, review, body)

    async def _charge(self, body: bytes, *, deadline: float, is_gone: Callable[[], bool]) -> Reply:
        started = time.perf_counter()
        try:
            answer = await self._validate(body, deadline=deadline, is_gone=is_gone)
        except ReviewError as exc:
            raise _malformed(exc) from exc
        return self._recorded(Phase.VALIDATE, answer, started)

    def _recorded(self, phase: Phase, answer: Answer, started: float) -> Reply:
        """Count and log a decision; return its response."""
        seconds = time.perf_counter() - started
        record = answer.record
        self._metrics.decision(phase, outcome=record.outcome, code=record.code, team=record.team, seconds=seconds)
        if record.would:
            self._metrics.shadow_decision(record.enforce, outcome=record.would, code=record.code, team=record.team)
        self._logs.decision(decision_line(phase, record, seconds))
        return Reply(answer.body)


def _malformed(error: ReviewError) -> HttpError:
    return HttpError(error.status, "MalformedReview", error.text)


def decision_line(phase: Phase, record: Record, seconds: float) -> dict[str, object]:
    """Return the fields of the log line of a decision."""
    shadow = {} if record.enforce == _ENFORCE else {"enforce": record.enforce, "would": record.would}
    return {
        "phase": phase,
        "uid": record.uid,
        "pod_uid": record.pod_uid,
        "operation": record.operation,
        "namespace": record.namespace,
        "name": record.name,
        "owner": record.owner,
        "user": record.user,
        "team": record.team,
        "tier": record.tier,
        "gpus": record.gpus,
        "outcome": record.outcome,
        "code": record.code,
        "nodes": record.nodes,
        "policy": record.policy,
        "dry_run": record.dry_run,
        "message": record.message,
        "duration_ms": round(seconds * 1000, 3),
        **shadow,
    }


def _check_headers(request: web.BaseRequest) -> None:
    headers = request.headers
    given = headers.get("Content-Type", "")
    if given != JSON and given.partition(";")[0].strip().lower() != JSON:
        got = repr(given[:80]) if given else "none"
        raise HttpError(415, "UnsupportedMediaType", f"expected Content-Type {JSON}, got {got}")
    if headers.get("Content-Encoding", "identity") != "identity":
        # A few compressed bytes can expand to any size; the API server never compresses reviews.
        raise HttpError(415, "UnsupportedMediaType", "the body must not be compressed")


def _error(status: int, body: dict[str, str], headers: dict[str, str]) -> Reply:
    return Reply(msgspec.json.encode(body) + b"\n", status, headers)
