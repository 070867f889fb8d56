"""The HTTPS server around the handlers: routes, listening, and a shutdown that fails no request."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from webhook.http.connections import Bounds, Connections
from webhook.http.server import connections_of, listening, open_sockets
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.server.http.handlers import REVIEW_PATHS, Handlers, Readiness
from webhook.server.http.plain_reviews import PlainHead, ReviewBatch, ReviewConnection, Sender
from webhook.server.http.replies import HttpError, Reply, RequestTarget, parse_target
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.settings import BACKLOG, BOUNDS, FINISH_SECONDS, Address, ServerSettings, StartupError

CallerCheck = Callable[[asyncio.BaseTransport | None], None]
"""Raises HttpError for a review that the client of a connection may not send."""


Handler = Callable[[web.BaseRequest, RequestTarget], Awaitable[web.Response]]

NO_ROUTES: Final[Mapping[str, Handler]] = {}


@dataclass(frozen=True, slots=True)
class _Route:
    methods: tuple[str, ...]
    handle: Handler


class App:
    """The endpoints of a reviewer; needs a running event loop. While draining it is unready and closes connections.

    `why_not_synced` returns why nothing can be decided yet, None once it can: until then reviews are answered with 503.
    Without `check_caller` any client may send reviews. `routes` answer GET requests, by path.
    """

    def __init__(
        self,
        reviewer: AdmissionReviewer,
        readiness: Readiness,
        metrics: Metrics,
        logs: Logs,
        *,
        why_not_synced: Callable[[], str | None],
        check_caller: CallerCheck | None = None,
        routes: Mapping[str, Handler] = NO_ROUTES,
    ) -> None:
        self.logs = logs
        self.is_draining = False
        self._handlers = handlers = Handlers(
            reviewer, readiness=readiness, metrics=metrics, logs=logs, why_not_synced=why_not_synced
        )
        self._check_caller = check_caller
        self._routes = {
            **{path: _Route(("POST",), self._review) for path in REVIEW_PATHS},
            "/healthz": _Route(("GET", "HEAD"), handlers.healthz),
            "/readyz": _Route(("GET", "HEAD"), handlers.readyz),
            "/metrics": _Route(("GET", "HEAD"), handlers.metrics),
        }
        self._routes |= {path: _Route(("GET",), handle) for path, handle in routes.items()}
        readiness.watch("serving", self._why_not_serving)

    def drain(self) -> None:
        """Become unready and close each connection after its next response."""
        self.is_draining = True

    def answers(self, path: str) -> bool:
        """Return whether this is the path of a review."""
        return path in REVIEW_PATHS

    def answer(self, head: PlainHead, body: bytes, caller: Sender) -> Reply | Awaitable[Reply]:
        """Respond to a plain review, at once or when its pod is charged."""
        try:
            if self._check_caller is not None:
                self._check_caller(caller.transport)
            reply = self._handlers.review(body, head.target, arrived=caller.arrived, is_gone=caller.is_gone)
        except Exception as exc:  # as in `handle`
            return self._failed(exc, head, caller)
        return reply if isinstance(reply, Reply) else self._answer_later(reply, head, caller)

    async def _answer_later(self, reply: Awaitable[Reply], head: PlainHead, caller: Sender) -> Reply:
        try:
            return await reply
        except Exception as exc:  # as in `handle`
            return self._failed(exc, head, caller)

    def _failed(self, exc: Exception, head: PlainHead, caller: Sender) -> Reply:
        if isinstance(exc, HttpError):
            return self._handlers.http_error(exc, raw_target=head.raw_target, remote=caller.remote)
        return self._handlers.bug(exc, raw_target=head.raw_target, remote=caller.remote)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to any request."""
        target = parse_target(request.raw_path)
        route = self._routes.get(target.path)
        try:
            if route is None or request.method not in route.methods:
                response = self._not_routed(request, target, route)
            else:
                response = await route.handle(request, target)
        except HttpError as error:
            response = self._http_error(request, error)
        except Exception as exc:  # the last line of defense: a bug must reach the log, not the caller
            response = self._handlers.bug(exc, raw_target=request.raw_path, remote=request.remote).to_response()
        if self.is_draining:
            response.force_close()
        return response

    async def _review(self, request: web.BaseRequest, target: RequestTarget) -> web.Response:
        if self._check_caller is not None:
            self._check_caller(request.transport)
        return (await self._handlers.read_review(request, target)).to_response()

    def _http_error(self, request: web.BaseRequest, error: HttpError) -> web.Response:
        return self._handlers.http_error(error, raw_target=request.raw_path, remote=request.remote).to_response()

    def _not_routed(self, request: web.BaseRequest, target: RequestTarget, route: _Route | None) -> web.Response:
        if route is None:
            text = f"no such path; the paths are {', '.join(self._routes)}"
            return self._http_error(request, HttpError(404, "NotFound", text))
        text = f"{target.path} accepts {' and '.join(route.methods)} only"
        response = self._http_error(request, HttpError(405, "MethodNotAllowed", text))
        response.headers["Allow"] = ", ".join(route.methods)
        return response

    def _why_not_serving(self) -> str | None:
        return "draining: the server was asked to stop" if self.is_draining else None


async def serve(
    app: App,
    settings: ServerSettings,
    ssl_context: ssl.SSLContext,
    *,
    stop: asyncio.Event,
    on_listening: Callable[[str], None] | None = None,
    bounds: Bounds = BOUNDS,
) -> None:
    """Listen and serve until `stop`, then drain: unready at once, every response closes its connection, then return.

    New connections are accepted during the drain, too: Services and API servers use a terminating pod for some
    seconds. `on_listening` receives the URL to call. Raises StartupError if the address cannot be bound.
    """
    batch = ReviewBatch(app, asyncio.get_running_loop())

    def make(room: Connections, remote: str) -> ReviewConnection:
        return ReviewConnection(room, remote, reviews=app, batch=batch)

    connections = connections_of(app.handle, bounds, make=make)
    try:
        sockets = open_sockets(settings.listen.host, settings.listen.port, backlog=BACKLOG)
    except OSError as exc:
        raise StartupError(f"cannot listen on {settings.listen}: {exc.strerror}") from exc
    async with listening(connections, sockets, tls=ssl_context, finish_seconds=FINISH_SECONDS):
        bound = [Address(*sock.getsockname()[:2]) for sock in sockets]
        url = _url(settings.listen, bound[0].port)
        app.logs.event.info("listening", url=url, addresses=[str(a) for a in bound])
        if on_listening is not None:
            on_listening(url)
        try:
            await stop.wait()
            app.drain()
            app.logs.event.info("draining", seconds=settings.drain_seconds)
            await asyncio.sleep(settings.drain_seconds)
        finally:
            app.drain()
    app.logs.event.info("stopped", requests=connections.requests)


def _url(listen: Address, port: int) -> str:
    return f"https://{Address('localhost' if listen.is_wildcard else listen.host, port)}"
