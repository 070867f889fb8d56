"""A small API server over real HTTP: snapshots in pages, watches from history, bookmarks, and faults on demand."""

import asyncio
import contextlib
import ssl
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from aiohttp import web
from multidict import CIMultiDictProxy

from tests.cluster.support.fake_writes import carry_out, place_of
from tests.cluster.support.watch_lines import Change, Obj, bookmark_line, event_line, line_of, shown_by

GONE = "The resourceVersion is too old"


@dataclass(frozen=True)
class Answer:
    """Refuse with this HTTP status."""

    status: int
    retry_after: str = ""
    message: str = ""


@dataclass(frozen=True)
class Body:
    """Answer 200 with these bytes, whatever was asked."""

    data: bytes


@dataclass(frozen=True)
class Slow:
    """Wait before answering properly."""

    seconds: float


@dataclass(frozen=True)
class Held:
    """Wait until `go` is set before answering properly."""

    go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Cut:
    """Drop the connection instead of answering: after carrying the request out, or without."""

    is_carried_out: bool


@dataclass(frozen=True)
class ErrorEvent:
    """End the watch with an ERROR event."""

    code: int


@dataclass(frozen=True)
class CutMidLine:
    """Send half of the next line, then drop the connection."""


@dataclass(frozen=True)
class Silent:
    """Keep the connection, and send nothing on it ever again."""


@dataclass(frozen=True)
class End:
    """End the watch normally."""


@dataclass(frozen=True)
class Brief:
    """End the watch normally after a bookmark with a new version."""


@dataclass(frozen=True)
class Lines:
    """Send these lines unchanged, and continue."""

    data: bytes


Fault = Lines | Answer | Body | Slow | Held | Cut | ErrorEvent | CutMidLine | Silent | End | Brief


@dataclass(frozen=True)
class Asked:
    verb: str
    path: str
    query: dict[str, str]
    authorization: str
    headers: CIMultiDictProxy[str]


@dataclass
class FakeApi:
    """The server and its state.

    Requests of a verb meet its `faults` once each, in order, and `always` every time. If other requests use the verb as
    well, a fault is for one path alone: under `get /api/v1/…`. Verbs: list, page (a further one of a list), watch,
    stream (a watch that begins with all existing objects; refused unless it `streams_lists`), look (a list of one
    object), and the HTTP methods in lower case for single objects. An object of more than `object_bytes` as JSON can be
    neither updated nor deleted. `groups` are the API groups that it says it has.
    """

    bookmark_seconds: float = 0.3
    streams_lists: bool = False
    tokens: set[str] = field(default_factory=lambda: {"good"})
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    always: dict[str, Fault] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    watchers: dict[asyncio.Queue[Change | Fault], str] = field(default_factory=dict)  # with their paths
    objects: dict[str, dict[str, Obj]] = field(default_factory=lambda: defaultdict(dict))
    history: list[Change] = field(default_factory=list)
    evictions: list[Obj] = field(default_factory=list)
    object_bytes: int = 0
    groups: list[str] = field(default_factory=list)
    kubernetes: tuple[str, str, str] = ("1", "37", "v1.37.0")
    version: int = 100
    forgotten: int = 0
    ahead_seconds: int = 0  # of this machine's clock
    restored: str = ""  # what tells a UID from one that the same version gave before
    url: str = ""
    _snapshots: dict[str, tuple[int, list[Obj]]] = field(default_factory=dict)

    # -- what the test does to the cluster

    def put(self, path: str, name: str, *, namespace: str = "", **parts: Any) -> Obj:
        """Create an object, or change one: its UID stays."""
        key = f"{namespace}/{name}"
        before = self.objects[path].get(key)
        self.version += 1
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}{self.restored}"
        meta = {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        meta = parts.pop("metadata", {}) | meta | ({"namespace": namespace} if namespace else {})
        after = {"metadata": meta, **parts}
        self.objects[path][key] = after
        self._publish(Change(self.version, path, before, after))
        return after

    def delete(self, path: str, name: str, *, namespace: str = "") -> None:
        self.drop(path, f"{namespace}/{name}")

    def keep(self, path: str, key: str, obj: Obj) -> Obj:
        """Store what a client wrote, with UID and version."""
        namespace, name = key.split("/")
        return self.put(path, name, namespace=namespace, **obj)

    def drop(self, path: str, key: str) -> Obj:
        before = self.objects[path].pop(key)
        self.version += 1
        self._publish(Change(self.version, path, before, None))
        return before

    def forget_history(self) -> None:
        """Compact: no watch can start from before now, and no list can be continued."""
        self.forgotten = self.version
        self.history.clear()
        self._snapshots.clear()

    def restore(self, version: int) -> None:
        """Put etcd back to an earlier version, with the objects that are there, and start again."""
        self.version = self.forgotten = version
        self.restored += "'"
        self.history.clear()
        self._snapshots.clear()
        self.disturb(End())

    def disturb(self, fault: Fault) -> None:
        """Let every open watch meet a fault now."""
        for queue in self.watchers:
            queue.put_nowait(fault)

    def count(self, verb: str) -> int:
        return sum(asked.verb == verb for asked in self.asked)

    def _publish(self, change: Change) -> None:
        self.history.append(change)
        for queue, path in self.watchers.items():
            if path == change.path:
                queue.put_nowait(change)

    # -- HTTP

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["FakeApi"]:
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_response_prepare.append(self._date)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _date(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(time.time() + self.ahead_seconds, usegmt=True)

    async def _version(self, _: web.Request) -> web.Response:
        if faults := self.faults["get /version"]:
            fault = faults.popleft()
            assert isinstance(fault, Answer)
            return _refusal(fault)
        return web.json_response(dict(zip(("major", "minor", "gitVersion"), self.kubernetes, strict=True)))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        verb = self._verb(request, query)
        token = request.headers.get("Authorization", "")
        self.asked.append(Asked(verb, request.path, query, token, request.headers))
        if token.removeprefix("Bearer ") not in self.tokens:
            return _refusal(Answer(401))
        if request.path in self.missing:
            return _refusal(Answer(404))
        faults = self.faults.get(f"{verb} {request.path}") or self.faults[verb]
        fault = faults.popleft() if faults else self.always.get(verb)
        match fault:
            case Answer():
                return _refusal(fault)
            case Body():
                return web.Response(body=fault.data)
            case Slow():
                await asyncio.sleep(fault.seconds)
            case Held():
                await fault.go.wait()
        if verb == "stream" and not self.streams_lists:
            return _refusal(Answer(422))
        if verb in ("watch", "stream"):
            return await self._watch(request, query, fault)
        if verb in ("list", "page", "look"):
            return self._list(request.path, query)
        return await self._single(request, fault)

    async def _single(self, request: web.Request, fault: Fault | None) -> web.Response:
        if request.path == "/apis":
            return web.json_response({"groups": [{"name": name} for name in self.groups]})
        if _is_discovery(request.path):  # nothing but a Body
            return _refusal(Answer(404))
        body = await request.read()
        if fault != Cut(is_carried_out=False):
            status, answer = carry_out(self, request.method, request.path, body, request.content_type)
        if isinstance(fault, Cut):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.json_response(answer, status=status)

    def _verb(self, request: web.Request, query: dict[str, str]) -> str:
        if "/proxy/" in request.path:  # to a Service: only faults answer
            return request.method.lower()
        if request.method != "GET" or _is_discovery(request.path) or (not query and place_of(request.path).name):
            return request.method.lower()
        if "sendInitialEvents" in query:
            return "stream"
        is_look = query.get("limit") == "1"
        return "watch" if "watch" in query else "page" if "continue" in query else "look" if is_look else "list"

    def _list(self, path: str, query: dict[str, str]) -> web.Response:
        if token := query.get("continue"):
            if token not in self._snapshots:
                return _refusal(Answer(410))
            version, rest = self._snapshots.pop(token)
        else:
            shown = shown_by(query)
            place = place_of(path)
            there = sorted(self.objects[place.collection].items())
            of_namespace = [o for key, o in there if not place.namespace or key.startswith(f"{place.namespace}/")]
            version, rest = self.version, [o for o in of_namespace if shown(o)]
        limit = int(query.get("limit", "500"))
        page, rest = rest[:limit], rest[limit:]
        meta = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = f"token-{len(self.asked)}"
            self._snapshots[meta["continue"]] = (version, rest)
        api_version = "/".join(path.split("/")[2:4]) if path.startswith("/apis/") else "v1"
        return web.json_response({"kind": "List", "apiVersion": api_version, "metadata": meta, "items": page or None})

    async def _watch(self, request: web.Request, query: dict[str, str], fault: Fault | None) -> web.StreamResponse:
        since = int(query.get("resourceVersion", self.version))
        if since < self.forgotten:
            return _refusal(Answer(410))
        queue: asyncio.Queue[Change | Fault] = asyncio.Queue()
        initial = [Lines(line) for line in self._initial(request.path, query)] if "sendInitialEvents" in query else []
        for thing in (*initial[: len(initial) // 2], fault, *initial[len(initial) // 2 :]):
            if thing is not None:
                queue.put_nowait(thing)
        for change in self.history:
            if change.version > since and change.path == request.path:
                queue.put_nowait(change)
        self.watchers[queue] = request.path
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                await self._stream(request, response, queue, shown_by(query), since)
        finally:
            del self.watchers[queue]
        return response

    def _initial(self, path: str, query: dict[str, str]) -> list[bytes]:
        """Return all objects as events, then the bookmark that ends the list. A fault occurs in the middle of it."""
        shown = shown_by(query)
        there = [line_of("ADDED", thing) for thing in self.objects[path].values() if shown(thing)]
        metadata = {"resourceVersion": str(self.version), "annotations": {"k8s.io/initial-events-end": "true"}}
        return [*there, line_of("BOOKMARK", {"metadata": metadata})]

    def _last_words(self, fault: ErrorEvent | End | Brief) -> bytes:
        match fault:
            case ErrorEvent():
                return line_of("ERROR", {"kind": "Status", "code": fault.code, "message": GONE})
            case Brief():
                self.version += 1
                return bookmark_line(self.version)
        return b""

    async def _next(self, queue: "asyncio.Queue[Change | Fault]") -> Change | Fault | None:
        """Wait for the next line: None, for a bookmark, only after everything before it was read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.bookmark_seconds):
                return await queue.get()
        return None if queue.empty() else queue.get_nowait()

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        queue: "asyncio.Queue[Change | Fault]",
        shown: Callable[[Obj], bool],
        since: int,
    ) -> None:
        is_cut = False
        while True:
            thing = await self._next(queue)
            match thing:
                case Change():
                    if (line := event_line(thing, shown, since)) is None:
                        continue
                case Lines():
                    line = thing.data
                case CutMidLine():
                    is_cut = True
                    continue
                case Silent():
                    await asyncio.Event().wait()
                case ErrorEvent() | End() | Brief():
                    await response.write(self._last_words(thing))
                    return
                case _:
                    line = bookmark_line(max(self.version, since))
            if is_cut:
                await response.write(line[: len(line) // 2])
                assert request.transport is not None
                request.transport.abort()
                return
            await response.write(line)


def _is_discovery(path: str) -> bool:
    """Whether this is what the API server has of all groups, of one, or of one version of it."""
    return path.startswith("/apis") and path.count("/") in (1, 2, 3)


def _refusal(answer: Answer) -> web.Response:
    headers = {"Retry-After": answer.retry_after} if answer.retry_after else {}
    if answer.status == HTTPStatus.FOUND:
        headers["Location"] = "/elsewhere"
    message = answer.message or f"configured to answer {answer.status}"
    status = {"kind": "Status", "code": answer.status, "message": message}
    return web.json_response(status, status=answer.status, headers=headers)
