"""The views as HTML: what each shows to one viewer, from the shared state."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from itertools import islice, takewhile
from typing import Any, Final

import msgspec
from aiohttp import web

from webhook.core.model.amount import gpu_number
from webhook.core.placement.gpu_inventory import GpuInventory
from webhook.page.http.answers import Answers
from webhook.page.http.forms import read_form
from webhook.page.http.templates import Templates
from webhook.page.live.cluster_state import ClusterState
from webhook.page.live.hub import Hub
from webhook.page.live.line import SharedLine
from webhook.page.live.readable import Readable
from webhook.page.views.gpu_map import by_fragmentation, holders_of
from webhook.page.views.search import LONGEST, MOST
from webhook.page.views.teams import ShareRow
from webhook.page.views.usage_history import Point, UsageHistory, sparkline, summed
from webhook.page.views.viewer import Viewer
from webhook.page.views.waiting_row import COLUMNS
from webhook.snapshots import SnapshotError

ROWS: Final = 100
"""Nodes, decisions or waiting pods on one page of a table."""

OF_ONE: Final = 2
"""Questions of one viewer that are answered at a time, where there may be several viewers."""

COLORS: Final = 12
"""Colors of teams; of more teams some have the same, and the names tell them apart."""

_LARGEST_PAGE: Final = 10_000
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

    @property
    def problem(self) -> str:
        """Why nothing is shown; "" while something is."""
        return self._state.problem

    async def map_page(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show the GPU map, and its nodes as a table, the most fragmented first."""
        readable = self._readable(viewer)
        rows = by_fragmentation(list(readable.rows()))
        number, shown = _page(rows, request)
        nodes = [(row, list(holders_of(row))) for row in shown]
        models, teams = [_model(each) for each in readable.models()], readable.teams()
        return self._html(
            "map.html",
            viewer,
            nodes=nodes,
            models=models,
            teams=teams,
            color=_color(teams),
            paging=_paging(number, len(rows)),
        )

    async def map_data(self, _request: web.Request, viewer: Viewer) -> web.Response:
        """Return all rows as JSON, as they were encoded when they changed."""
        readable = self._readable(viewer)
        teams, rows = msgspec.json.encode(readable.teams()), b",".join(readable.encoded_rows())
        partial = b"false" if viewer.sees_all else b"true"
        body = b'{"sequence":%d,"partial":%s,"teams":%s,"rows":[%s]}' % (self._state.sequence, partial, teams, rows)
        return web.Response(body=body, content_type="application/json")

    async def teams(self, _request: web.Request, viewer: Viewer) -> web.Response:
        """Show teams and departments, their holders, and their last day."""
        now = int(time.time())
        why_not = _NO_HISTORY if self._history is None else self._history.why_not
        days = {} if self._history is None or why_not else self._history.last_day(now)
        readable = self._readable(viewer)
        shares = readable.shares()
        rows = [(row, sparkline(_day_of(number, shares, days), now=now)) for number, row in enumerate(shares)]
        return self._html(
            "teams.html",
            viewer,
            rows=rows,
            no_history=why_not,
            color=_color(readable.teams()),
        )

    async def line(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Show who waits."""
        found = self._readable(viewer).line(await self._line.line())
        number, shown = _page(found.rows, request)
        left_out, paging = found.waiting - len(found.rows), _paging(number, len(found.rows))
        unknown = Counter(row.likely_start_unknown for row in shown if row.likely_start_unknown is not None)
        return self._html(
            "line.html",
            viewer,
            columns=COLUMNS,
            rows=shown,
            now=int(time.time()),
            unknown=unknown.most_common(_REASONS),
            waiting=found.waiting,
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
        return self._html("search.html", viewer, query=query, hits=hits, most=MOST)

    async def explain(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Explain one pod."""
        namespace, name = request.query.get("namespace", ""), request.query.get("name", "")
        with self._asking(viewer):
            found = await self._answers.explain(namespace, name, self._readable(viewer))
        status = HTTPStatus.OK if found is not None else HTTPStatus.NOT_FOUND
        return self._html("explain.html", viewer, status, found=found, namespace=namespace, name=name)

    async def review_form(self, _request: web.Request, viewer: Viewer) -> web.Response:
        """Show the form of "Would this run?"."""
        return self._review(viewer, "", "default", viewer.name, None)

    async def review(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Answer whether a manifest would run; nothing is written, here or in the cluster."""
        form = await read_form(request)
        manifest, namespace, user = (form.get(each, "") for each in ("manifest", "namespace", "user"))
        namespace = namespace.strip() or "default"
        with self._asking(viewer):
            readable = self._readable(viewer)
            answer = await self._answers.review(manifest.encode(), readable, namespace=namespace, user=user.strip())
        return self._review(viewer, manifest, namespace, user, answer)

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

    def _review(self, viewer: Viewer, manifest: str, namespace: str, user: str, answer: object) -> web.Response:
        return self._html("review.html", viewer, manifest=manifest, namespace=namespace, user=user, answer=answer)

    def _readable(self, viewer: Viewer) -> Readable:
        """Return what a viewer may read: no view reads the state in another way."""
        return Readable(self._state, viewer)

    def _html(
        self,
        template: str,
        viewer: Viewer,
        status: HTTPStatus = HTTPStatus.OK,
        /,
        **values: Any,  # noqa: ANN401 - a template takes values of every type
    ) -> web.Response:
        state = self._state
        text = self._templates.render(
            template,
            viewer=viewer,
            takes_tokens=self._takes_tokens,
            view=template.removesuffix(".html"),
            origin=state.origin,
            policy=state.world.policy.hash,
            stale=state.why_stale() or "",
            notes=(*state.reading.notes, *viewer.notes),
            **values,
        )
        return web.Response(text=text, status=status, content_type="text/html")


def _color(teams: Iterable[str]) -> Callable[[str], int]:
    order = {name: number % COLORS for number, name in enumerate(teams)}
    return lambda team: order.get(team, COLORS)


def _day_of(number: int, rows: Sequence[ShareRow], days: Mapping[str, Sequence[Point]]) -> Sequence[Point]:
    """Return the last day of a team; of a department that of the teams below it, which follow it in the tree."""
    row = rows[number]
    if row.is_team:
        return days.get(row.name, ())
    below = takewhile(lambda each: each.depth > row.depth, rows[number + 1 :])
    return summed(days.get(each.name, ()) for each in below if each.is_team)


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
    names = ("capacity", "free", "closed", "held", "fragmented")
    gpus = {name: gpu_number(getattr(found, name)) for name in names}
    return {"model": found.model, "resource": found.resource, "whole_nodes": found.whole_nodes, **gpus}
