"""GET /usage: what a replica recorded, for callers that the API server allows to list all pods, and for no other."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.addons.history import recorded
from tests.addons.history.support import T0, row
from webhook.addons.history import reader
from webhook.addons.history.reader import RecordedTrace
from webhook.addons.history.server import AT_ONCE, UsageEndpoint
from webhook.addons.history.store import HistoryError
from webhook.kube.objects.keys import TOKEN_HEADER
from webhook.server.http.replies import HttpError

RANGE = f"/usage?since={T0}&until={T0 + 3600}"


class Rights:
    """Knows one token."""

    async def why_not_all_pods(self, token):
        return None if token == "reader's" else "may not list pods in all namespaces"


class Recorder:
    def __init__(self, *, rows=(), problem=None):
        self.rows, self.problem, self.asked = rows, problem, []
        self.go = asyncio.Event()
        self.go.set()

    async def read(self, since, until, *, step_seconds, most):
        self.asked.append((since, until, step_seconds))
        await self.go.wait()
        if self.problem is not None:
            raise HistoryError(self.problem)
        return self.rows[:most]

    async def read_pods(self, since, until):
        self.asked.append((since, until, None))
        return RecordedTrace(1, T0, float(until), pods=self.rows)


def endpoint(recorder, rights=Rights()):  # noqa: B008 - has no state
    made = UsageEndpoint(recorder)
    made.rights = rights
    return made


async def get(made, path=RANGE, *, token="reader's"):
    return await made.get(SimpleNamespace(raw_path=path, headers={TOKEN_HEADER: token} if token else {}), None)


async def refusal(made, path=RANGE, **more):
    with pytest.raises(HttpError) as raised:
        await get(made, path, **more)
    return raised.value


async def test_a_reader_gets_the_rows_of_the_time_range():
    rows = (row("guaranteed", 12.5, team="vision", user="ada", model="A100", department="research"),)
    recorder = Recorder(rows=rows)
    response = await get(endpoint(recorder))
    assert reader.decode(response.body, name="a").rows == rows
    assert recorder.asked == [(T0, T0 + 3600, 300)]


async def test_a_reader_gets_the_pods_that_came_and_no_more_than_an_answer_takes(monkeypatch):
    recorder = Recorder(rows=recorded.PODS)
    response = await get(endpoint(recorder), f"{RANGE}&of=pods")
    found = reader.decode_trace(response.body, name="a")
    assert (found.trace.pods, found.since) == (recorded.PODS, T0)
    assert (await refusal(endpoint(recorder), f"{RANGE}&of=pods", token="")).status == 403
    monkeypatch.setattr(reader, "MAX_PODS", 3)
    assert (await refusal(endpoint(recorder), f"{RANGE}&of=pods")).status == 413


@pytest.mark.parametrize("token", ["", "another user's"])
async def test_other_callers_get_nothing_and_nothing_is_read_for_them(token):
    recorder = Recorder()
    assert (await refusal(endpoint(recorder), token=token)).status == 403
    assert not recorder.asked


async def test_without_a_cluster_no_caller_is_answered():
    assert (await refusal(endpoint(Recorder(), rights=None))).status == 403


@pytest.mark.parametrize(
    "query", ["", "?since=1", "?since=a&until=b", "?since=5&until=5", "?since=-1&until=2", f"?since=0&until={10**30}"]
)
async def test_a_range_that_is_none_is_refused(query):
    assert (await refusal(endpoint(Recorder()), f"/usage{query}")).status == 400


async def test_a_server_without_a_history_says_so():
    found = await refusal(endpoint(Recorder(problem="this server records no history")))
    assert (found.status, found.text) == (404, "this server records no history")


async def test_more_rows_than_an_answer_takes_are_refused(monkeypatch):
    monkeypatch.setattr(reader, "MAX_ROWS", 3)
    assert (await refusal(endpoint(Recorder(rows=(row("waiting", 1),) * 9)))).status == 413


async def test_a_crowd_of_callers_has_to_come_again():
    recorder = Recorder()
    recorder.go.clear()
    made = endpoint(recorder)
    first = [asyncio.create_task(get(made)) for _ in range(AT_ONCE)]
    while len(recorder.asked) < AT_ONCE:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0)
    found = await refusal(made)
    assert (found.status, found.retry_after_seconds) == (429, 2)
    recorder.go.set()
    await asyncio.gather(*first)
    assert (await get(made)).status == 200


def test_a_long_range_has_longer_steps():
    assert reader.step_seconds(0, 86_400) == 300
    assert reader.step_seconds(0, 90 * 86_400) == 300 * 65


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "did not answer with a history"),
        (b'{"rows": []}', "did not answer with a history"),
        (b'{"format": 2}', "answers in format 2, and this version reads up to 1"),
    ],
)
def test_an_answer_that_is_none_is_refused(body, why):
    with pytest.raises(HistoryError, match=why):
        reader.decode(body, name="a")


def test_fields_and_kinds_of_a_later_version_are_left_out():
    body = b'{"format":1,"unit":"x","rows":[{"start":0,"kind":"slept"},{"start":0,"kind":"free","new":1}]}'
    assert [each.key.kind for each in reader.decode(body, name="a").rows] == ["free"]
