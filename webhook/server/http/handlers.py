"""HTTP handlers: check a request, call the reviewer, respond, and record the decision once.

Responses are JSON or plain text and never contain a traceback. The hot path is `Handlers._review`: no router, no
middleware, the body read once (aiohttp's own router costs 6 of the 36 us of a bare request).
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from webhook.core.model.policy import Enforcement
from webhook.kube.admission.review import ReviewError
from webhook.observe.decisions import Phase
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.server.http.bodies import BodyReader
from webhook.server.http.http_error import HttpError
from webhook.server.http.probes import Readiness
from webhook.server.http.request_target import Target
from webhook.server.review.answer import Answer, Record, Reviewer
from webhook.server.settings import BODY_SECONDS

JSON: Final = "application/json"
_JSON_HEADERS: Final = {"Content-Type": JSON}
_ENFORCE: Final = Enforcement.ENFORCE.value
_NOT_LOGGED: Final = frozenset({404, 405})
"""Statuses that scanners and typos cause: counted, but not logged."""


class Handlers:
    """The endpoints of one server."""

    def __init__(
        self,
        reviewer: Reviewer,
        *,
        readiness: Readiness,
        metrics: Metrics,
        logs: Logs,
        why_not_synced: Callable[[], str | None],
    ) -> None:
        self._reviewer = reviewer
        self._readiness = readiness
        self._metrics = metrics
        self._logs = logs
        self._why_cold = why_not_synced
        self._bodies = BodyReader()
        self._clock = asyncio.get_running_loop().time

    async def mutate(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Handle POST /mutate."""
        return await self._review(request, target, Phase.MUTATE, self._reviewer.mutate)

    async def validate(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Handle POST /validate."""

        def is_gone() -> bool:
            return request.transport is None or request.transport.is_closing()

        return await self._review(request, target, Phase.VALIDATE, partial(self._reviewer.validate, is_gone=is_gone))

    async def workloads(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Handle POST /workloads."""
        return await self._review(request, target, Phase.WORKLOADS, self._reviewer.workloads)

    async def claims(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Handle POST /claims."""
        return await self._review(request, target, Phase.CLAIMS, self._reviewer.claims)

    async def jobs(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Handle POST /jobs."""
        return await self._review(request, target, Phase.JOBS, self._reviewer.jobs)

    async def gangs(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Handle POST /gangs."""
        return await self._review(request, target, Phase.GANGS, self._reviewer.gangs)

    async def healthz(self, _request: web.BaseRequest, _target: Target) -> web.Response:
        """Handle GET /healthz: an event loop that runs this is alive."""
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.BaseRequest, _target: Target) -> web.Response:
        """Handle GET /readyz: 200 or 503, with every condition by name."""
        conditions = self._readiness.conditions()
        is_ready = all(condition.ok for condition in conditions.values())
        body = msgspec.json.encode({"ready": is_ready, "conditions": conditions}) + b"\n"
        return web.Response(body=body, status=200 if is_ready else 503, headers=_JSON_HEADERS)

    async def metrics(self, request: web.BaseRequest, _target: Target) -> web.Response:
        """Handle GET /metrics."""
        exposition = self._metrics.expose(request.headers.get("Accept", ""))
        body = bytearray()
        for piece in exposition.pieces:
            body += piece
            await asyncio.sleep(0)  # reviews have priority
        return web.Response(body=bytes(body), headers={"Content-Type": exposition.content_type})

    def http_error(self, request: web.BaseRequest, error: HttpError) -> web.Response:
        """Return the response of an error; count it and, except for 404 and 405, log it."""
        self._metrics.http_error(error.status)
        if error.status not in _NOT_LOGGED:
            self._logs.event.warning(
                "request refused",
                status=error.status,
                code=error.code,
                error=error.text,
                path=request.raw_path,
                remote=request.remote,
            )
        response = _error(error.status, {"error": error.text, "code": error.code})
        if error.retry_after_seconds:
            response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response

    def bug(self, request: web.BaseRequest, exc: Exception) -> web.Response:
        """Log a bug with its traceback under a request id, and return only the id."""
        request_id = secrets.token_hex(8)
        self._metrics.http_error(500)
        self._logs.event.error("bug", request_id=request_id, path=request.raw_path, remote=request.remote, exc_info=exc)
        text = f"internal error; see request id {request_id} in the server's log"
        return _error(500, {"error": text, "code": "InternalError", "requestId": request_id})

    async def _review(
        self,
        request: web.BaseRequest,
        target: Target,
        phase: Phase,
        review: "Callable[..., Awaitable[Answer]]",
    ) -> web.Response:
        arrived = self._clock()
        if (why := self._why_cold()) is not None:
            raise HttpError(503, "NotReady", why, retry_after_seconds=1)
        if target.timeout_problem:
            raise HttpError(400, "InvalidTimeout", target.timeout_problem)
        _check_headers(request)
        body = await self._bodies.read(request, within_seconds=min(BODY_SECONDS, target.work_seconds))
        try:
            await self._bodies.wait_turn(body)
            started = time.perf_counter()
            answer = await review(body.text, deadline=arrived + target.work_seconds)
        except ReviewError as exc:
            raise HttpError(exc.status, "MalformedReview", exc.text) from exc
        finally:
            self._bodies.release(body)
        seconds = time.perf_counter() - started
        record = answer.record
        self._metrics.decision(phase, outcome=record.outcome, code=record.code, team=record.team, seconds=seconds)
        if record.would:
            self._metrics.shadow_decision(record.enforce, outcome=record.would, code=record.code, team=record.team)
        self._logs.decision(_line(phase, record, seconds))
        return web.Response(body=answer.body, headers=_JSON_HEADERS)


def _line(phase: Phase, record: Record, seconds: float) -> dict[str, object]:
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


def _error(status: int, body: dict[str, str]) -> web.Response:
    return web.Response(body=msgspec.json.encode(body) + b"\n", status=status, headers=_JSON_HEADERS)
