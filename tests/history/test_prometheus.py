"""Usage from Prometheus: counters of each replica, read at the end of each interval. The real one: tests/scenarios."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.history.support import T0, amounts
from webhook.history.prometheus import read_prometheus
from webhook.history.schema import HistoryError
from webhook.history.usage_row import INTERVAL_SECONDS as STEP

GPU = {"kind": "guaranteed", "team": "vision", "department": "", "model": "A100"}


class Fake:
    """Answers queries with the series of each metric, by the metric's name in the query."""

    def __init__(self):
        self.series = {}
        self.answer = None
        self.queries = []

    def set(self, metric, labels, values, *, instance="a:8443"):
        found = {"metric": {"instance": instance, **labels}, "values": [[at, str(value)] for at, value in values]}
        self.series.setdefault(metric, []).append(found)

    def respond(self, path):
        self.queries.append(path)
        if self.answer is not None:
            return self.answer
        found = next((each for name, each in self.series.items() if f"%28{name}_total%7B" in path), [])
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode()


@pytest.fixture
def fake():
    fake = Fake()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = fake.respond(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever).start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    yield fake
    server.shutdown()
    server.server_close()


def read(fake, intervals=3):
    return read_prometheus(fake.url, T0, T0 + intervals * STEP)


def guaranteed(recording):
    return {(each.start - T0) // STEP: each.amount for each in recording.rows if each.key.kind == "guaranteed"}


def test_a_counter_counts_by_its_growth_in_each_interval(fake):
    fake.set("fairgate_usage_observed_seconds", {}, [(T0 + n * STEP, 5000 + n * STEP) for n in range(4)])
    fake.set("fairgate_usage_gpu_seconds", GPU, [(T0, 10_000), (T0 + STEP, 10_600), (T0 + 2 * STEP, 10_600)])
    fake.set("fairgate_usage_refused", {"team": "vision", "department": "d"}, [(T0, 7), (T0 + STEP, 9)])
    (found,) = read(fake)
    assert guaranteed(found) == {0: 600}
    assert amounts(found.rows, start=T0)["refused", "vision", "", ""] == 2


def test_a_replica_that_starts_in_the_range_counts_from_zero(fake):
    fake.set("fairgate_usage_observed_seconds", {}, [(T0 + 2 * STEP, 100), (T0 + 3 * STEP, 400)])
    fake.set("fairgate_usage_gpu_seconds", GPU, [(T0 + 2 * STEP, 150), (T0 + 3 * STEP, 750)])
    assert guaranteed(read(fake)[0]) == {1: 150, 2: 600}


def test_what_a_process_counted_before_prometheus_scraped_it_is_left_out(fake):
    fake.set("fairgate_usage_observed_seconds", {}, [(T0 + STEP, 900_000), (T0 + 2 * STEP, 900_300)])
    fake.set("fairgate_usage_gpu_seconds", GPU, [(T0 + STEP, 5_000_000), (T0 + 2 * STEP, 5_000_600)])
    assert guaranteed(read(fake)[0]) == {1: 600}


def test_a_restart_counts_from_zero_and_a_gap_of_prometheus_loses_nothing(fake):
    fake.set("fairgate_usage_observed_seconds", {}, [(T0, 4000), (T0 + 2 * STEP, 4600), (T0 + 3 * STEP, 200)])
    fake.set("fairgate_usage_gpu_seconds", GPU, [(T0, 4000), (T0 + 2 * STEP, 4600), (T0 + 3 * STEP, 200)])
    assert guaranteed(read(fake)[0]) == {1: 600, 2: 200}


def test_each_replica_is_a_recording(fake):
    for name in ("a:8443", "b:8443"):
        fake.set("fairgate_usage_observed_seconds", {}, [(T0, 0), (T0 + STEP, 300)], instance=name)
        fake.set("fairgate_usage_gpu_seconds", GPU, [(T0, 0), (T0 + STEP, 600)], instance=name)
    assert [guaranteed(each) for each in read(fake)] == [{0: 600}, {0: 600}]


def test_the_series_of_one_cluster_are_chosen_and_those_of_several_are_never_mixed(fake):
    for name in ("east", "west"):
        fake.set("fairgate_usage_observed_seconds", {"cluster": name}, [(T0, 0), (T0 + STEP, 300)])
    why = r"has several clusters \(east, west\): choose one, such as --match 'cluster=\"east\"'"
    with pytest.raises(HistoryError, match=why):
        read(fake)
    fake.series.clear()
    fake.set("fairgate_usage_observed_seconds", {"cluster": "east"}, [(T0, 0), (T0 + STEP, 300)])
    read_prometheus(fake.url, T0, T0 + STEP, matchers='cluster="east"')
    assert "%7Bcluster%3D%22east%22%7D" in fake.queries[-1]


def test_a_long_range_is_read_in_parts(fake):
    fake.set("fairgate_usage_observed_seconds", {}, [(T0, 0)])
    read(fake, intervals=30 * 288)
    assert len([each for each in fake.queries if "observed" in each]) == 5


def test_a_prometheus_without_our_metrics_is_named(fake):
    with pytest.raises(HistoryError, match="has no fairgate_usage_observed_seconds_total in this time"):
        read(fake)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, b"<html>"), "does not answer as a Prometheus does"),
        ((200, b"[]"), "does not answer as a Prometheus does"),
        ((200, b'{"data": {"result": 3}}'), "does not answer as a Prometheus does"),
        ((422, b'{"status": "error", "error": "too many samples"}'), "refused the query: 422 too many samples"),
        ((503, b"<html>"), "refused the query: 503 Service Unavailable"),
    ],
)
def test_an_answer_that_is_none_is_refused_with_the_reason(fake, answer, why):
    fake.answer = answer
    with pytest.raises(HistoryError, match=why):
        read(fake)
