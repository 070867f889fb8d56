"""The page's routes, protected, and its stream.

What protects the page in a browser: headers of every response, and the cookie of a session.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from webhook.addons.page.access.access import Authenticator, Caller, Hosts, Origin, TooManySignInsError
from webhook.addons.page.http.templates import MOST_BYTES, StaticFile, Templates, own_address, read_form, static_files
from webhook.addons.page.http.view_pages import ViewPages
from webhook.addons.page.live.hub import READING, Client, Hub, TooManyError
from webhook.addons.page.views.teams import Viewer
from webhook.cluster.api.client import ClusterError
from webhook.files import SnapshotError
from webhook.http.server import finished

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, browsers send the Origin of a form as null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "fairgate",
}
"""No inline script or style, no other host, no frame, nothing in a cache."""

_COOKIE: Final = "fairgate-page"


async def add_headers(_request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Add the headers to a response that is about to be sent."""
    for name, value in HEADERS.items():
        response.headers[name] = value


def cookie_name(host: str) -> str:
    """Return the name of the cookie: cookies of one host are sent to all of its ports."""
    port = host.rpartition(":")[2]
    return f"{_COOKIE}-{port}" if port.isdecimal() else _COOKIE


def set_cookie(request: web.Request, response: web.StreamResponse, cookie: str) -> None:
    """Give the browser the cookie of a session, for this site's own requests only."""
    is_secure = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
    response.set_cookie(cookie_name(request.host), cookie, httponly=True, samesite="Strict", path="/", secure=is_secure)


# The stream of server-sent events of one open page.


KEEP_ALIVE_SECONDS: Final = 15.0
"""After so long without a message one is sent, and the viewer's rights are looked at again."""

SEND_SECONDS: Final = 20.0
"""A message that a client does not take within so long ends its stream."""

_RETRY: Final = b"retry: 3000\n\n"
_STILL: Final = b"event: still\ndata: {}\n\n"
"""An event and not a comment: a browser whose connection died without a word misses it, and connects again."""


async def stream_to(
    request: web.Request,
    hub: Hub,
    viewer: Viewer,
    *,
    is_still_allowed: Callable[[], Awaitable[bool]],
) -> web.StreamResponse:
    """Send events until the page is closed, is too slow, or its viewer's rights changed."""
    try:
        client = hub.join(viewer)
    except TooManyError:
        text = "too many pages are open: close some\n"
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text, headers={"Retry-After": "10"})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    try:
        await response.prepare(request)
        await response.write(_RETRY + hub.hello())
        await _send(response, client, is_still_allowed)
    except (ConnectionError, TimeoutError, ClusterError, TooManySignInsError):
        pass  # the browser connects again
    finally:
        hub.leave(client)
    return response


async def _send(response: web.StreamResponse, client: Client, is_still_allowed: Callable[[], Awaitable[bool]]) -> None:
    checked = asyncio.get_running_loop().time()
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                message = await client.next()
        except TimeoutError:
            message = _STILL
        if not message:
            return
        now = asyncio.get_running_loop().time()
        if now - checked >= KEEP_ALIVE_SECONDS:
            checked = now
            if not await is_still_allowed():
                return
        async with asyncio.timeout(SEND_SECONDS):
            await response.write(message)


# The page's HTTP application: who may come in, and which view answers. GET, and two forms that write nothing.


_OPEN: Final = frozenset({"/healthz", "/open", "/sign-in", "/sign-out"})
_VIEWER: Final = web.RequestKey("viewer", Viewer)
_FAILURES: Final[dict[type[Exception], tuple[HTTPStatus, str]]] = {
    TooManySignInsError: (HTTPStatus.TOO_MANY_REQUESTS, "Too many sign-ins"),
    SnapshotError: (HTTPStatus.SERVICE_UNAVAILABLE, "No answer"),
    ClusterError: (HTTPStatus.BAD_GATEWAY, "The API server does not answer"),
    TimeoutError: (HTTPStatus.REQUEST_TIMEOUT, "The form did not arrive in time"),
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageApp:
    """Routes of the page. `views` renders them; `authenticator` finds the viewer."""

    def __init__(self, views: ViewPages, authenticator: Authenticator, hosts: Hosts, *, templates: Templates) -> None:
        self._views = views
        self._authenticator = authenticator
        self._hosts = hosts
        self._templates = templates
        self._static: dict[str, StaticFile] = static_files()

    def application(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[_finish, self._guard], client_max_size=MOST_BYTES)
        app.on_response_prepare.append(add_headers)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/open", self._open),
                web.get("/sign-in", self._sign_in_form),
                web.post("/sign-in", self._sign_in),
                web.post("/sign-out", self._sign_out),
                web.get("/static/{name}", self._static_file),
                web.get("/events", self._events),
                web.get("/signed-in", self._shown(self._views.signed_in)),
                web.get("/map.json", self._shown(self._views.map_data)),
                web.get("/", self._shown(self._views.map_page)),
                web.get("/teams", self._shown(self._views.teams)),
                web.get("/queue", self._shown(self._views.line)),
                web.get("/decisions", self._shown(self._views.decisions)),
                web.get("/search", self._shown(self._views.search)),
                web.get("/explain", self._shown(self._views.explain)),
                web.get("/code", self._shown(self._views.code)),
                web.get("/moves", self._shown(self._views.moves)),
                web.get("/review", self._shown(self._views.review_form)),
                web.post("/review", self._shown(self._views.review)),
            ]
        )
        return app

    def _shown(self, view: Callable[[web.Request, Viewer], Awaitable[web.Response]]) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await view(request, request[_VIEWER])

        return handle

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Let a request through to its view, or say on a page why not."""
        try:
            return self._refusal(request) or await self._let_in(request) or await handler(request)
        except web.HTTPRequestEntityTooLarge:
            text = f"The form takes up to {MOST_BYTES >> 10} KiB: use fairgate review for more."
            return self._message(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too long", text)
        except web.HTTPException as error:
            return self._message(HTTPStatus(error.status), error.reason, "The page has no such address.")
        except tuple(_FAILURES) as error:
            status, title = next(answer for kind, answer in _FAILURES.items() if isinstance(error, kind))
            return self._message(status, title, str(error))

    async def _let_in(self, request: web.Request) -> web.Response | None:
        """Note the viewer of a request; return the page that says why there is none, or nothing to see."""
        if request.path in _OPEN or request.path.startswith("/static/"):
            return None
        viewer = await self._authenticator.viewer(_caller(request))
        if viewer is None:
            return self._asks_to_sign_in(request.path_qs)
        if viewer.sees_nothing:
            return self._no_rights(viewer)
        if problem := self._views.problem:
            if problem.startswith(READING):
                status = HTTPStatus.SERVICE_UNAVAILABLE
                return self._page(status, "message.html", title="Reading", text=problem, refresh=True)
            return self._message(HTTPStatus.FORBIDDEN, "Nothing can be shown", problem)
        request[_VIEWER] = viewer
        return None

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return why a request is not looked at: it names another host, or comes from another site."""
        if request.path != "/healthz" and not self._hosts.allows(request.host):  # a probe names the pod's address
            text = (
                "This page is not served under this name. Use the URL that was printed; in a cluster, "
                "name the host with --host."
            )
            return self._message(HTTPStatus.MISDIRECTED_REQUEST, "Unknown host", text)
        if request.method not in ("GET", "HEAD") and not self._hosts.is_own(
            origin=request.headers.get("Origin", ""),
            site=request.headers.get("Sec-Fetch-Site", ""),
            host=request.host,
        ):
            return self._message(HTTPStatus.FORBIDDEN, "Not from here", "A form of another site was refused.")
        return None

    def _asks_to_sign_in(self, address: str = "/", problem: str = "") -> web.Response:
        """Return the form, which leads to the address that was asked for."""
        if self._authenticator.takes_tokens:
            address = own_address(address)
            return self._page(HTTPStatus.UNAUTHORIZED, "sign_in.html", problem=problem, address=address)
        text = (
            "Open the URL that fairgate page printed when it was started last. It works once; for another browser, "
            "start the page again."
        )
        return self._message(HTTPStatus.UNAUTHORIZED, "Open the printed URL", text)

    def _no_rights(self, viewer: Viewer) -> web.Response:
        text = (
            f"{viewer.name or 'You'} may not list pods in any namespace with GPU pods, so there is nothing to show. "
            "The right to list pods in a namespace (ClusterRole view) shows that namespace."
        )
        return self._message(HTTPStatus.FORBIDDEN, "Nothing that you may see", text)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _open(self, request: web.Request) -> web.Response:
        """Take the token of the printed URL, and lead on from here, so that the browser sends the strict cookie."""
        if self._authenticator.takes_tokens:
            return self._asks_to_sign_in()
        cookie = await self._authenticator.sign_in(request.query.get("token", ""), _origin(request))
        if not cookie:
            return self._asks_to_sign_in()
        return self._opened(request, cookie, "/")

    def _opened(self, request: web.Request, cookie: str, address: str) -> web.Response:
        response = self._page(HTTPStatus.OK, "open.html", address=own_address(address))
        set_cookie(request, response, cookie)
        return response

    async def _sign_in_form(self, request: web.Request) -> web.Response:
        return self._asks_to_sign_in(request.query.get("address", "/"))

    async def _sign_in(self, request: web.Request) -> web.Response:
        if not self._authenticator.takes_tokens:
            return self._asks_to_sign_in()
        form = await read_form(request)
        cookie = await self._authenticator.sign_in(form.get("token", ""), _origin(request))
        address = form.get("address", "/")
        if not cookie:
            problem = "The API server does not accept this token: it may be expired, or of another cluster."
            return self._asks_to_sign_in(address, problem)
        return self._opened(request, cookie, address)

    async def _sign_out(self, request: web.Request) -> web.Response:
        name = cookie_name(request.host)
        self._authenticator.sign_out(request.cookies.get(name, ""))
        response = self._asks_to_sign_in()
        response.set_status(HTTPStatus.OK)
        response.del_cookie(name, path="/")
        return response

    async def _static_file(self, request: web.Request) -> web.Response:
        found = self._static.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found.body, content_type=found.content_type, charset="utf-8")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        caller = _caller(request)
        viewer = request[_VIEWER]

        async def is_still_allowed() -> bool:
            return await self._authenticator.viewer(caller) == viewer

        return await stream_to(request, self._views.hub, viewer, is_still_allowed=is_still_allowed)

    def _message(self, status: HTTPStatus, title: str, text: str) -> web.Response:
        return self._page(status, "message.html", title=title, text=text, refresh=False)

    def _page(self, status: HTTPStatus, name: str, **values: Any) -> web.Response:  # noqa: ANN401 - of every type
        text = self._templates.render(name, **values)
        return web.Response(text=text, status=status, content_type="text/html")


@web.middleware
async def _finish(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Have the shell note when a request has its whole response."""
    return await finished(request, await handler(request))


def _caller(request: web.Request) -> Caller:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return Caller(request.cookies.get(cookie_name(request.host), ""), bearer, _origin(request))


def _origin(request: web.Request) -> Origin:
    return Origin.of(request.remote or "", ",".join(request.headers.getall("X-Forwarded-For", ())))
