"""GET /usage: what was recorded of a time range, for callers who may list the pods of all namespaces."""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from webhook.cluster.api.client import ClusterError
from webhook.cluster.reads.installation import CallerRights
from webhook.history import reader
from webhook.history.recorder import UsageRecorder
from webhook.history.store import HistoryError
from webhook.kube.objects.keys import TOKEN_HEADER
from webhook.server.http.replies import HttpError, RequestTarget

AT_ONCE: Final = 2
"""Requests at a time; others get a 429, so that reviews keep the processor."""
_LATEST: Final = 1 << 40


class UsageEndpoint:
    """Answers from what this replica recorded. Without `rights` no caller can be checked, and none is answered."""

    def __init__(self, recorder: UsageRecorder) -> None:
        self.rights: CallerRights | None = None
        self._recorder = recorder
        self._running = 0

    async def get(self, request: web.BaseRequest, _target: RequestTarget) -> web.Response:
        """Handle GET /usage?since=SECONDS&until=SECONDS; with &of=pods the pods that came, for `fairgate replay`."""
        if self._running >= AT_ONCE:
            raise HttpError(429, "TooManyRequests", "other requests for usage are answered now", retry_after_seconds=2)
        self._running += 1
        try:
            await self._check(request.headers.get(TOKEN_HEADER, ""))
            query = parse_qs(request.raw_path.partition("?")[2])
            since, until = _range(query)
            answer = self._pods if query.get("of") == ["pods"] else self._answer
            return web.Response(body=await answer(since, until), content_type="application/json")
        finally:
            self._running -= 1

    async def _check(self, token: str) -> None:
        if self.rights is None:
            raise HttpError(403, "Forbidden", "this server has no cluster that could say what a caller may see")
        try:
            why = await self.rights.why_not_all_pods(token)
        except ClusterError as error:
            raise HttpError(503, "NotReady", f"the caller's rights are not known: {error}") from error
        if why is not None:
            raise HttpError(403, "Forbidden", why)

    async def _answer(self, since: int, until: int) -> bytes:
        try:
            step = reader.step_seconds(since, until)
            rows = await self._recorder.read(since, until, step_seconds=step, most=reader.MAX_ROWS + 1)
        except HistoryError as error:
            raise HttpError(404, "NoHistory", str(error)) from error
        if len(rows) > reader.MAX_ROWS:
            text = f"more than {reader.MAX_ROWS:,} rows; ask for a shorter time"
            raise HttpError(413, "TooManyRows", text)
        return await asyncio.to_thread(reader.encode, rows)

    async def _pods(self, since: int, until: int) -> bytes:
        try:
            found = await self._recorder.read_pods(since, until)
        except HistoryError as error:
            raise HttpError(404, "NoHistory", str(error)) from error
        if len(found.pods) > reader.MAX_PODS:
            text = f"{len(found.pods):,} pods, and at most {reader.MAX_PODS:,} are sent: ask for a shorter time"
            raise HttpError(413, "TooManyRows", text)
        return await asyncio.to_thread(msgspec.json.encode, found)


def _range(query: Mapping[str, list[str]]) -> tuple[int, int]:
    try:
        since, until = int(query["since"][0]), int(query["until"][0])
    except (KeyError, ValueError):
        raise HttpError(400, "InvalidRange", "expected since and until in whole seconds of Unix time") from None
    if not 0 <= since < until <= _LATEST:
        raise HttpError(400, "InvalidRange", "since must be before until")
    return since, until
