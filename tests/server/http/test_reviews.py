"""What callers of /mutate and /validate get, over real HTTPS."""

import asyncio
import json
from io import BytesIO

import pytest

from tests.server.support.harness import record_with, until
from webhook.core.model.reasons import Code, Reason
from webhook.kube.admission.reviews import ReviewError

MIB = 1024 * 1024


@pytest.mark.parametrize("phase", ["mutate", "validate"])
async def test_a_review_is_answered_and_recorded_once(server, phase):
    reply = await server.review(f"/{phase}?timeout=5s", data=b"x" * 9_500)
    assert (reply.status, reply.json) == (200, {"length": 9_500})
    assert server.reviewer.calls == [phase]
    (line,) = server.lines("decision")
    assert line.pop("duration_ms") >= 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "event": "decision",
        "phase": phase,
        "uid": "705ab4f5",
        "pod_uid": "9f1c",
        "operation": "CREATE",
        "namespace": "vision",
        "name": "train-0",
        "owner": "Job/train",
        "user": "ada",
        "team": "vision",
        "tier": "guaranteed",
        "gpus": 3,
        "outcome": "admit",
        "code": "WithinShare",
        "nodes": ["node-1"],
        "policy": "abc123",
        "dry_run": False,
        "message": "uses 3 of 20 GPUs",
    }
    metrics = (await server.ask("GET", "/metrics")).text
    assert (
        f'fairgate_decisions_total{{code="WithinShare",outcome="admit",phase="{phase}",team="vision"}} 1.0' in metrics
    )
    assert f'fairgate_decision_duration_seconds_count{{phase="{phase}"}} 1.0' in metrics


async def test_until_the_world_is_synced_reviews_get_a_503(server):
    server.reviewer.why_not_synced = "not listed yet: pods"
    reply = await server.review()
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert reply.json == {"error": "not listed yet: pods", "code": "NotReady"}
    assert server.reviewer.calls == []
    server.reviewer.why_not_synced = None
    assert (await server.review()).status == 200


async def test_text_from_pods_cannot_forge_a_log_line(server):
    why = Reason(Code.BORROWS, "{text}", {"text": "\x1b[2Jü\u2028"})
    server.reviewer.record = record_with(name='a"\n{"event":"decision"}', reason=why)
    await server.review()
    (line,) = server.lines("decision")
    assert (line["name"], line["message"]) == ('a"\n{"event":"decision"}', r"\x1b[2Jü\u2028")


async def test_one_connection_serves_many_requests(server):
    reader, writer = await server.connect()
    for length in (2, 9_500, 0):
        writer.write(
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (length, b"x" * length)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"onnection: close" not in head
        body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        assert json.loads(body) == {"length": length}


async def test_concurrent_reviews_all_get_their_own_answer(server):
    replies = await asyncio.gather(*(server.review(data=b"x" * size) for size in range(60)))
    assert [reply.json["length"] for reply in replies] == list(range(60))
    assert len(server.lines("decision")) == 60


@pytest.mark.parametrize(
    ("query", "want_seconds"),
    [
        pytest.param("", 8, id="without a timeout, Kubernetes' default"),
        pytest.param("?timeout=5s", 4, id="four fifths of the caller's"),
        pytest.param("?timeout=1m30s", 24, id="no more than a webhook may have"),
        pytest.param("?other=1&timeout=2s", 1.6, id="among other parameters"),
    ],
)
async def test_work_gets_its_share_of_the_callers_timeout(server, query, want_seconds):
    assert (await server.review(f"/validate{query}")).status == 200
    (left,) = server.reviewer.seconds_left
    assert left == pytest.approx(want_seconds, abs=0.5)


@pytest.mark.parametrize("text", ["abc", "5", "-1s", "0s", "", "5x", "s"])
async def test_a_bad_timeout_is_a_400(server, text):
    reply = await server.review(f"/mutate?timeout={text}")
    assert (reply.status, reply.json["code"]) == (400, "InvalidTimeout")
    assert "expected a positive duration such as 5s, 500ms or 1m30s" in reply.json["error"]
    assert server.reviewer.calls == []


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;"]
)
async def test_json_content_types_in_any_spelling_are_accepted(server, content_type):
    reply = await server.ask("POST", "/mutate", data=b"{}", headers={"Content-Type": content_type})
    assert reply.status == 200


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ({"Content-Type": "text/plain"}, "expected Content-Type application/json, got 'text/plain'"),
        ({"Content-Type": "application/json-patch+json"}, "got 'application/json-patch+json'"),
        ({"Content-Type": "application/vnd.kubernetes.protobuf"}, "got 'application/vnd.kubernetes.protobuf'"),
        ({"Content-Type": ""}, "got none"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "must not be compressed"),
    ],
)
async def test_other_content_is_a_415(server, headers, want):
    reply = await server.ask("POST", "/validate", data=b"{}", headers=headers)
    assert (reply.status, reply.json["code"]) == (415, "UnsupportedMediaType")
    assert want in reply.json["error"]
    assert server.reviewer.calls == []


async def chunks(total):
    for _ in range(total // 65_536):
        yield b"x" * 65_536


async def test_a_body_at_the_limit_is_accepted(server):
    assert (await server.review(data=BytesIO(b"x" * (8 * MIB)))).json == {"length": 8 * MIB}


@pytest.mark.parametrize(
    "make_body", [lambda: BytesIO(b"x" * (9 * MIB)), lambda: chunks(9 * MIB)], ids=["with Content-Length", "in chunks"]
)
async def test_a_body_over_the_limit_is_a_413_and_the_server_lives_on(server, make_body):
    reply = await server.review(data=make_body())
    assert (reply.status, reply.json) == (413, {"error": "the body is larger than 8 MiB", "code": "BodyTooLarge"})
    assert server.reviewer.calls == []
    assert (await server.review()).status == 200


async def test_a_body_that_trickles_in_is_a_408(server):
    reader, writer = await server.connect()
    writer.write(
        b"POST /mutate?timeout=250ms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9\r\n\r\n{"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=30)
    assert head.startswith(b"HTTP/1.1 408 ")
    body = await asyncio.wait_for(reader.read(), timeout=30)  # to its end: the connection is closed, too
    assert b"the body was not received within 0.2 s" in body
    assert server.reviewer.calls == []


async def test_a_client_that_disconnects_during_a_body_is_not_a_bug(server):
    _, writer = await server.connect()
    writer.write(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        b"Cookie: not plain\r\n\r\n{"
    )
    await asyncio.sleep(0.05)
    writer.transport.abort()
    await until(lambda: server.lines("request refused"))
    assert server.lines("bug") == []
    assert server.lines("library") == []


async def test_expect_100_continue_is_answered(server):
    reader, writer = await server.connect()
    writer.write(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


def fail_with(error):
    def work():
        raise error

    return work


async def test_a_malformed_review_is_a_400_with_its_reason(server):
    server.reviewer.work = fail_with(ReviewError("request.object is missing"))
    reply = await server.review()
    assert (reply.status, reply.json) == (400, {"error": "request.object is missing", "code": "MalformedReview"})
    (line,) = server.lines("request refused")
    assert (line["level"], line["error"], line["path"]) == ("warning", "request.object is missing", "/mutate")
    assert 'fairgate_http_errors_total{status="400"} 1.0' in (await server.ask("GET", "/metrics")).text
    assert server.lines("decision") == []


async def test_a_bug_is_a_500_with_an_id_and_a_log_line_with_the_traceback(server):
    server.reviewer.work = fail_with(KeyError("a secret of the inside"))
    reply = await server.review()
    assert (reply.status, reply.json["code"]) == (500, "InternalError")
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text
    (line,) = server.lines("bug")
    assert line["request_id"] == reply.json["requestId"]
    assert "KeyError: 'a secret of the inside'" in line["traceback"]
    server.reviewer.work = lambda: None
    assert (await server.review()).status == 200


async def test_requests_that_are_not_http_get_plain_text_and_one_warning(server):
    reader, writer = await server.connect()
    writer.write(b"\x16\x03\x01 not http\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert b"Traceback" not in answer
    assert (await server.review()).status == 200


async def test_a_reviewer_can_check_whether_the_client_disconnected(server):
    arrived, left = asyncio.Event(), asyncio.Event()

    async def work():
        assert not server.reviewer.is_gone()
        arrived.set()
        await until(server.reviewer.is_gone)
        left.set()

    server.reviewer.work = work
    _, writer = await server.connect()
    head = "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    writer.write(head.encode())
    await asyncio.wait_for(arrived.wait(), 60)
    writer.transport.abort()
    await asyncio.wait_for(left.wait(), 60)
