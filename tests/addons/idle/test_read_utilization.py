"""Utilization from a Prometheus: what is asked, what counts, and every way in which there is none."""

import json
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.addons.idle.made import SOURCE
from tests.cluster.support.fake_prometheus import ENGINE, UTIL, FakePrometheus
from tests.cluster.support.pki import Authority
from webhook.addons.idle import utilization
from webhook.addons.idle.utilization import SECONDS, UtilizationError, query_of, read_utilization

NOW = time.time


@asynccontextmanager
async def serving(**more):
    async with FakePrometheus(NOW).serving(**more) as found:
        yield found, replace(SOURCE, url=found.url)


async def fails(source, **more):
    with pytest.raises(UtilizationError) as raised:
        await read_utilization(source, now=more.pop("now", NOW()))
    return str(raised.value)


async def test_one_query_for_each_metric_whatever_the_number_of_pods():
    async with serving() as (prometheus, source):
        for number in range(50):
            prometheus.use(f"p{number}", 3.0)
            prometheus.use(f"p{number}", 0.5, name=ENGINE)
        found = await read_utilization(source, now=NOW())
        assert len(prometheus.asked) == 2
    assert {(each.pod, each.percent, each.is_of_whole_gpus) for each in found if each.pod == "p7"} == {
        ("p7", 3.0, True),
        ("p7", 50.0, False),
    }


async def test_series_of_other_jobs_do_not_count():
    """A tenant exports metrics of the same name for a pod of their own, or of others."""
    async with serving() as (prometheus, source):
        prometheus.use("mine", 99.0, job="tenant")
        prometheus.use("theirs", 0.0)
        assert [each.pod for each in await read_utilization(source, now=NOW())] == ["theirs"]


def test_the_text_of_policy_stays_inside_its_quotes():
    source = replace(SOURCE, series=(("job", 'a",x="b\\'),))
    assert '{job="a\\",x=\\"b\\\\"}[120s]' in query_of(source.metrics[0], source)


async def test_a_token_and_a_ca_are_read_for_each_round(tmp_path):
    authority, token = Authority(tmp_path, "ca"), tmp_path / "token"
    token.write_text("one\n")
    async with serving(tls=authority.server("prometheus")) as (prometheus, plain):
        source = replace(plain, ca_file=str(authority.certificate), token_file=str(token))
        await read_utilization(source, now=NOW())
        token.write_text("two")
        await read_utilization(source, now=NOW())
        assert set(prometheus.tokens) == {"Bearer one", "Bearer two"}
        assert "certificate" in await fails(plain)
        token.write_text("\n")
        assert "has no token" in await fails(source)
        assert "cannot be read" in await fails(replace(source, ca_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"status": 403}, "it answered 403: no such thing"),
        ({"status": 302, "body": b""}, "it answered 302"),
        ({"body": b"<html>"}, "not one of Prometheus"),
        ({"body": json.dumps({"status": "error", "error": "timed out"}).encode()}, "the query failed: timed out"),
        ({"body": b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"x"]}]}}'}, "not one of Prometheus"),
        ({"late_seconds": 300.0}, "it is late, or a clock is wrong"),
        ({"wait_seconds": SECONDS + 5}, f"did not answer within {SECONDS:g} s"),
    ],
    ids=["forbidden", "a redirect", "no JSON", "a failed query", "no number", "an old answer", "no answer"],
)
async def test_without_an_answer_nothing_is_known(change, want):
    async with serving() as (prometheus, source):
        prometheus.use("a", 0.0)
        for name, value in change.items():
            setattr(prometheus, name, value)
        assert want in await fails(source)


async def test_a_prometheus_that_is_not_there():
    async with serving() as (_, source):
        pass
    assert "it cannot be reached" in await fails(source)


async def test_an_answer_is_bounded(monkeypatch):
    monkeypatch.setattr(utilization, "MAX_BYTES", 1 << 10)
    async with serving() as (prometheus, source):
        for number in range(100):
            prometheus.use(f"p{number}", 0.0, name=UTIL)
        assert "longer than" in await fails(source)


async def test_one_failed_query_of_two_is_no_reading():
    """GPUs whose only other metric is missing would look unused."""
    async with serving() as (prometheus, source):
        prometheus.use("a", 0.0)
        prometheus.fails_after = 1
        assert "it answered 500" in await fails(source)
        assert len(prometheus.asked) == 2
