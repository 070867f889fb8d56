"""The views as HTML: what each shows to one viewer, from the shared state."""

import asyncio
import gzip
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from itertools import islice, takewhile
from typing import Any, Final

import msgspec
from aiohttp import web

from webhook.addons.page.http.answers import Answers, Reviewed
from webhook.addons.page.http.templates import Links, Templates, read_form
from webhook.addons.page.live.cluster_state import ClusterState
from webhook.addons.page.live.hub import Hub
from webhook.addons.page.live.readable import Readable, SharedLine
from webhook.addons.page.views.decisions import LONGEST, MOST
from webhook.addons.page.views.gpu_map import COLORS, by_fragmentation, holders_of, team_colors, team_letters
from webhook.addons.page.views.teams import Point, ShareRow, UsageHistory, Viewer, sparkline, summed
from webhook.cli.queue.rows import COLUMNS, WaitingReport, earlier_cell
from webhook.core.explain.pod_rows import bypassed_text, left_text
from webhook.core.model.amounts import column_gpus, gpu_number, parse_amount
from webhook.core.placement.best_nodes import GpuInventory
from webhook.files import SnapshotError

ROWS: Final = 100
"""Nodes, decisions or waiting pods on one page of a table."""

OF_ONE: Final = 2
"""Questions of one viewer that are answered at a time, where there may be several viewers."""

_GZIP_LEVEL: Final = 4
"""The bytes of the map become a seventh by this; by level 9 an eighth, in four times the time."""

_LARGE_BYTES: Final = 1 << 16
"""A page that is longer is compressed in a thread."""

_LARGEST_PAGE: Final = 10_000
_CAUSE: Final = next(column for column in COLUMNS if column.is_cause)
_REASONS: Final = 3
_NO_HISTORY: Final = (
    "The use of the last 24 hours is not known: `fairgate serve --history` records it, and --history names the file."
)


class ViewPages:
    """Renders the views. `hub` sends what changes; `history` is None where none is kept."""

    def __init__(
        self,
        state: ClusterState,
        hub: Hub,
        line: SharedLine,
        answers: Answers,
        *,
        templates: Templates,
        history: UsageHistory | None,
        takes_tokens: bool,
    ) -> None:
        self.hub = hub
        self._state = state
        self._line = line
        self._answers = answers
        self._templates = templates
        self._history = history
        self._takes_tokens = takes_tokens
        self._asked: Counter[str] = Counter()
        self._packed = (b"", b"")  # the whole map as JSON, and compressed
        self._packing = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Why nothing is shown; "" while something is."""
        return self._state.problem

    async def map_page(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show the GPU map, and its nodes as a table, the most fragmented first; or the nodes of a part of a name."""
        readable = self._readable(viewer)
        wanted = request.query.get("node", "")[:LONGEST].strip().lower()
        rows = by_fragmentation([row for row in readable.rows() if wanted in row.node.lower()])
        number, shown = _page(rows, request)
        return self._html(
            "map.html",
            request,
            viewer,
            nodes=[(row, list(holders_of(row))) for row in shown],
            models=[_model(each) for each in readable.models()],
            free={(row.model, row.resource): row for row in (await self._line.free() if viewer.sees_all else ())},
            summary=readable.summary(),
            over=[row.of.name for row in readable.shares(holders=0) if row.is_over],
            idle=readable.idle(most=ROWS) or (),
            bypassed=bypassed_text(readable.bypassed(most=sys.maxsize)[0]),
            paging=_paging(number, len(rows)),
        )

    async def map_data(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Return all rows as JSON, as they were encoded when they changed; compressed where the client takes that."""
        readable = self._readable(viewer)
        teams, rows = msgspec.json.encode(_marks(readable.teams())), b",".join(readable.encoded_rows())
        partial = b"false" if viewer.sees_all else b"true"
        body = b'{"sequence":%d,"partial":%s,"teams":%s,"rows":[%s]}' % (self._state.sequence, partial, teams, rows)
        headers = {}
        if _takes_gzip(request):
            headers["Content-Encoding"] = "gzip"
            body = await self._compressed(body, is_whole=viewer.sees_all)
        return web.Response(body=body, headers=headers, content_type="application/json")

    async def _compressed(self, body: bytes, *, is_whole: bool) -> bytes:
        """Compress the rows in a thread: those that all see who see everything once for each state."""
        if not is_whole:
            return await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)
        async with self._packing:
            if body != self._packed[0]:
                self._packed = body, await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)
            return self._packed[1]

    async def teams(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show teams and departments, their holders, and their last day."""
        now = int(time.time())
        why_not = _NO_HISTORY if self._history is None else self._history.why_not
        days = {} if self._history is None or why_not else self._history.last_day(now)
        readable = self._readable(viewer)
        shares = readable.shares()
        rows = [(row, sparkline(_day_of(number, shares, days), now=now)) for number, row in enumerate(shares)]
        return self._html(
            "teams.html",
            request,
            viewer,
            rows=rows,
            idle=readable.idle(most=ROWS),
            minimums=readable.minimums(most=ROWS),
            bypassed=readable.bypassed(most=ROWS),
            no_history=why_not,
        )

    async def line(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show who waits."""
        of, user = request.query.get("of", ""), request.query.get("user", "")[:LONGEST].strip()
        found = self._readable(viewer).line(await self._line.line(), team=of, user=user)
        number, shown = _page(found.groups, request)
        is_filtered = bool(of or user)
        left_out = 0 if is_filtered else found.waiting - sum(map(len, found.groups))
        paging = _paging(number, len(found.groups))
        return self._html(
            "line.html",
            request,
            viewer,
            columns=COLUMNS,
            groups=shown,
            gpus_of=_gpus_of,
            now=int(time.time()),
            waiting=sum(map(len, found.groups)) if is_filtered else found.waiting,
            in_line=found.teams,
            of=of,
            user=user,
            left_out=left_out,
            paging=paging,
        )

    async def decisions(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show the newest decisions, of one kind or with some words if the viewer asks for that."""
        words, kind = request.query.get("q", "")[:LONGEST], request.query.get("kind", "")
        readable = self._readable(viewer)
        rows = readable.decisions(words=words, kind=kind)
        number, shown = _page(rows, request)
        return self._html(
            "decisions.html",
            request,
            viewer,
            rows=shown,
            words=words,
            kind=kind,
            kinds=readable.kinds(),
            paging=_paging(number, len(rows)),
        )

    async def search(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show the pods that match a text."""
        query = request.query.get("q", "")[:LONGEST]
        hits = self._readable(viewer).hits(query)
        return self._html("search.html", request, viewer, query=query, hits=hits, most=MOST)

    async def explain(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Explain one pod."""
        namespace, name = request.query.get("namespace", ""), request.query.get("name", "")
        with self._asking(viewer):
            found = await self._answers.explain(namespace, name, self._readable(viewer))
        status = HTTPStatus.OK if found is not None else HTTPStatus.NOT_FOUND
        waiting = None if found is None else found.waiting
        if found is not None and found.is_queued and waiting is None:
            waiting = await self._in_line(namespace, name, viewer)
        return self._html(
            "explain.html",
            request,
            viewer,
            status,
            found=found,
            waiting=waiting,
            earlier="" if waiting is None else earlier_cell(waiting),
            cause=_CAUSE,
            now=int(time.time()),
            namespace=namespace,
            name=name,
            left=left_text(namespace, name, self._state.world) if viewer.sees(namespace) and found is None else "",
        )

    async def code(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show what causes a code, and what to do."""
        name = request.query.get("name", "")
        found = self._answers.codes.get(name)
        status = HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK
        return self._html("code.html", request, viewer, status, name=name, found=found)

    async def _in_line(self, namespace: str, name: str, viewer: Viewer) -> WaitingReport | None:
        """Return the row in the queue of a pod whose explanation has none: the place that who sees it may know."""
        try:
            rows = self._readable(viewer).line(await self._line.line()).rows
        except SnapshotError:
            return None
        return next((row for row in rows if (row.namespace, row.name) == (namespace, name)), None)

    async def moves(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show which moves of running pods would make room for pods that wait."""
        with self._asking(viewer):
            answer = await self._answers.moves(self._readable(viewer))
        return self._html("moves.html", request, viewer, answer=answer)

    async def review_form(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show the form of "Would this run?"."""
        return self._review(request, viewer, ("", "default", viewer.name), None)

    async def signed_in(self, _request: web.Request, _viewer: Viewer) -> web.Response:
        """Answer a page that lost its stream and asks whether to connect again: a request that comes here may."""
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def review(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Answer whether a manifest would run; nothing is written, here or in the cluster."""
        form = await read_form(request)
        manifest, namespace, user = (form.get(each, "") for each in ("manifest", "namespace", "user"))
        namespace = namespace.strip() or "default"
        with self._asking(viewer):
            readable = self._readable(viewer)
            answer = await self._answers.review(manifest.encode(), readable, namespace=namespace, user=user.strip())
        return self._review(request, viewer, (manifest, namespace, user), answer)

    @contextmanager
    def _asking(self, viewer: Viewer) -> Iterator[None]:
        """Count the questions of one viewer who is not alone. Raises SnapshotError for too many."""
        if self._takes_tokens and self._asked[viewer.person] >= OF_ONE:
            raise SnapshotError("your earlier questions are still being answered: try again in a few seconds")
        self._asked[viewer.person] += 1
        try:
            yield
        finally:
            self._asked[viewer.person] -= 1
            if not self._asked[viewer.person]:
                del self._asked[viewer.person]

    def _review(
        self, request: web.Request, viewer: Viewer, form: tuple[str, str, str], answer: Reviewed | None
    ) -> web.Response:
        manifest, namespace, user = form
        return self._html(
            "review.html", request, viewer, manifest=manifest, namespace=namespace, user=user, answer=answer
        )

    def _readable(self, viewer: Viewer) -> Readable:
        """Return what a viewer may read: no view reads the state in another way."""
        return Readable(self._state, viewer)

    def _html(
        self,
        template: str,
        request: web.Request,
        viewer: Viewer,
        status: HTTPStatus = HTTPStatus.OK,
        /,
        **values: Any,  # noqa: ANN401 - a template takes values of every type
    ) -> web.Response:
        state, teams = self._state, self._readable(viewer).teams()
        team = request.query.get("team", "")
        team, colors = team if team in teams else "", team_colors(teams)
        text = self._templates.render(
            template,
            viewer=viewer,
            teams=teams,
            team=team,
            links=Links(request.path, request.query, team=team),
            color=lambda name: colors.get(name, COLORS),
            letters=team_letters(teams),
            codes=self._answers.codes,
            takes_tokens=self._takes_tokens,
            has_session=self._takes_tokens and not request.headers.get("Authorization"),
            view=template.removesuffix(".html"),
            origin=state.origin,
            policy=state.world.policy.hash,
            saved=state.saved,
            stale=state.why_stale() or "",
            notes=(*state.reading.notes, *viewer.notes),
            **values,
        )
        response = web.Response(text=text, status=status, content_type="text/html", zlib_executor_size=_LARGE_BYTES)
        if _takes_gzip(request):
            response.enable_compression(web.ContentCoding.gzip)
        return response


def _takes_gzip(request: web.Request) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "")


def _gpus_of(group: Sequence[WaitingReport]) -> str:
    """Return the GPUs of a gang, or of one pod."""
    return column_gpus(sum(parse_amount(each.gpus) for each in group))


def _marks(teams: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return teams with the letters that tell them apart, and their colors."""
    colors = team_colors(teams)
    return [(name, letters, colors[name]) for name, letters in team_letters(teams).items()]


def _day_of(number: int, rows: Sequence[ShareRow], days: Mapping[str, Sequence[Point]]) -> Sequence[Point]:
    """Return the last day of a team; of a department that of the teams below it, which follow it in the tree."""
    row = rows[number]
    if row.is_team:
        return days.get(row.of.name, ())
    below = takewhile(lambda each: each.depth > row.depth, rows[number + 1 :])
    return summed(days.get(each.of.name, ()) for each in below if each.is_team)


def _page(rows: Sequence[Any], request: web.Request) -> tuple[int, list[Any]]:
    """Return the number of the page that was asked for, from 1, and its rows."""
    asked = request.query.get("page", "1")
    number = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) <= len(str(_LARGEST_PAGE)) else 1
    last = max(1, -(-len(rows) // ROWS))
    number = min(max(1, number), last)
    return number, list(islice(rows, (number - 1) * ROWS, number * ROWS))


def _paging(number: int, total: int) -> dict[str, int]:
    return {"page": number, "pages": max(1, -(-total // ROWS)), "total": total, "first": (number - 1) * ROWS + 1}


def _model(found: GpuInventory) -> dict[str, object]:
    names = ("capacity", "free", "closed", "held", "fragmented", "largest")
    gpus = {name: gpu_number(getattr(found, name)) for name in names}
    return {"model": found.model, "resource": found.resource, "whole_nodes": found.whole_nodes, **gpus}
