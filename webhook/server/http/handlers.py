"""Bytes to review to bytes; probes.

Request bodies: limits on size and time of each, on the memory of all, and large ones are processed one by one.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from webhook.core.model.policy import Enforcement
from webhook.kube.admission.reviews import ReviewError
from webhook.kube.registration.registration import (
    CLAIMS_PATH,
    GANGS_PATH,
    JOBS_PATH,
    MUTATE_PATH,
    VALIDATE_PATH,
    WORKLOADS_PATH,
)
from webhook.observe.logs import Logs, Phase
from webhook.observe.metrics import Metrics
from webhook.server.http.replies import JSON, HttpError, Reply, RequestTarget
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import Answer, Record
from webhook.server.settings import BODY_SECONDS, MAX_BODIES_BYTES, MAX_BODY_BYTES

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this size never wait for others: a pod has 10 KiB."""


class BodyReader:
    """Reads bodies, and bounds the total size of large ones. Needs a running event loop."""

    def __init__(self) -> None:
        self._free = MAX_BODIES_BYTES
        self._has_released = asyncio.Event()
        self._turn = asyncio.Lock()

    async def read(self, request: web.BaseRequest, *, within_seconds: float) -> "Body":
        """Read the whole body within size and time. The caller must `release` it."""
        size = request.content_length
        if request.content.is_eof() or (size is not None and size <= SMALL_BYTES):
            return Body(await _read(request, within_seconds=within_seconds), 0)
        size = MAX_BODY_BYTES if size is None else size
        if size > MAX_BODY_BYTES:
            raise too_large()
        ends = asyncio.get_running_loop().time() + within_seconds
        await self._reserve(size, until=ends)
        try:
            text = await _read(request, within_seconds=ends - asyncio.get_running_loop().time())
        except BaseException:
            self._add(size)
            raise
        return Body(text, size)

    async def wait_turn(self) -> None:
        """Wait until a body that takes long may be processed: between two of them all others that wait go first."""
        async with self._turn:
            await asyncio.sleep(0)

    def release(self, body: "Body") -> None:
        """Release the memory of a body for others."""
        if body.reserved_bytes:
            self._add(body.reserved_bytes)

    async def _reserve(self, size: int, *, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                while self._free < size:
                    self._has_released.clear()
                    await self._has_released.wait()
        except TimeoutError as exc:
            text = "too many large bodies are being read at once"
            raise HttpError(503, "TooManyBodies", text, retry_after_seconds=1) from exc
        self._free -= size

    def _add(self, size: int) -> None:
        self._free += size
        self._has_released.set()


class Body(NamedTuple):
    """A body, and the memory that is reserved for it."""

    text: bytes
    reserved_bytes: int

    @property
    def is_large(self) -> bool:
        """Whether it takes turns with others."""
        return len(self.text) > SMALL_BYTES


def too_large() -> HttpError:
    """Return the error for a body over the limit."""
    return HttpError(413, "BodyTooLarge", f"the body is larger than {MAX_BODY_BYTES // 1024**2} MiB")


async def _read(request: web.BaseRequest, *, within_seconds: float) -> bytes:
    try:
        if request.content.is_eof():
            return await _whole(request)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(within_seconds):
            return await _whole(request)
    except TimeoutError as exc:
        text = f"the body was not received within {within_seconds:g} s"
        raise HttpError(408, "BodyTimeout", text) from exc
    except (web.RequestPayloadError, ConnectionError) as exc:
        raise HttpError(400, "BrokenBody", "the body ended early or its HTTP framing is invalid") from exc


async def _whole(request: web.BaseRequest) -> bytes:
    """Return the whole body. aiohttp's own `read` has a limit of 1 MiB that only a `web.Application` changes."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise too_large()
    return bytes(body)


# Readiness: named conditions that must all hold. Liveness needs no state: an event loop that responds is alive.


@dataclass(frozen=True, slots=True)
class ReadyCondition:
    """One condition: `why` it does not hold, or an optional remark if it holds."""

    ok: bool
    why: str = ""


OK: Final = ReadyCondition(ok=True)


class Readiness:
    """The conditions of one server by name. Ready only if all of them hold; a condition that was never set does not.

    Conditions named at the start are set by `set_ok`; those added by `watch` are evaluated on every probe.
    """

    def __init__(self, *names: str) -> None:
        self._set = dict.fromkeys(names, ReadyCondition(ok=False, why="not available yet"))
        self._watched: dict[str, Callable[[], str | None]] = {}
        self._remarks: dict[str, Callable[[], str | None]] = {}

    def set_ok(self, name: str, *, remark: str = "") -> None:
        """Set a condition to hold; the remark is shown with it."""
        self._set[name] = ReadyCondition(ok=True, why=remark)

    def watch(
        self, name: str, why_not: Callable[[], str | None], *, remark: Callable[[], str | None] | None = None
    ) -> None:
        """Evaluate a condition on every probe: `why_not` returns None if it holds, then `remark` may add a text."""
        self._watched[name] = why_not
        if remark is not None:
            self._remarks[name] = remark

    def conditions(self) -> dict[str, ReadyCondition]:
        """Return all conditions as of now."""
        reasons = {name: why_not() for name, why_not in self._watched.items()}
        return self._set | {
            name: ReadyCondition(ok=False, why=why) if why else self._remarked(name) for name, why in reasons.items()
        }

    def _remarked(self, name: str) -> ReadyCondition:
        remark = self._remarks[name]() if name in self._remarks else None
        return ReadyCondition(ok=True, why=remark) if remark else OK

    def why_not(self) -> str | None:
        """Return which conditions do not hold, and why; None if ready."""
        failing = [f"{name}: {each.why}" for name, each in self.conditions().items() if not each.ok]
        return "; ".join(failing) or None


# HTTP handlers: call the reviewer, respond, and record the decision once; probes and metrics.
#
# Responses are JSON or plain text and never contain a traceback. The hot path is `Handlers.review`: no router, no
# middleware, the body read once.


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
