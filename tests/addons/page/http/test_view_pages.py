"""What the views show: the map's data, a pod's page, times and links, the queue, and the last day of teams."""

import gzip
import json
import re
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import quote

import pytest

from tests import builders as b
from tests.addons.page.support.pages import policy_of, sample_objects, served, state_of, waiting
from tests.addons.page.views.test_teams import idle_state, scaled_state
from tests.cli import sample_world
from tests.cluster.support.stores import write_kubeconfig
from webhook.addons.page.asked import Cluster, CommandAnswers
from webhook.addons.page.live.cluster_state import note_event
from webhook.addons.page.live.readable import Readable
from webhook.addons.page.views.teams import EVERYTHING, Point
from webhook.cli.queue.rows import COLUMNS
from webhook.core.explain.line_rows import EarlierWaits, TeamWaits
from webhook.core.explain.team_rows import board_of
from webhook.core.model.amounts import ONE_GPU
from webhook.files import Snapshots


@pytest.fixture(scope="module")
def page():
    state = state_of()
    state.waits = EarlierWaits([TeamWaits("nlp", 4 * ONE_GPU, (60, 1800))])
    with served(state) as found:
        found.enter()
        yield found


def test_the_map_is_compressed_where_that_is_taken_and_is_else_the_same(page):
    _, headers, plain = page.request("/map.json")
    assert "Content-Encoding" not in headers
    connection = HTTPConnection("127.0.0.1", page.port, timeout=30)
    connection.request("GET", "/map.json", headers={"Cookie": page.cookie, "Accept-Encoding": "br, gzip"})
    with closing(connection):
        answer = connection.getresponse()
        assert answer.getheader("Content-Encoding") == "gzip"
        packed = answer.read()
    assert len(packed) < len(plain) / 2
    assert json.loads(gzip.decompress(packed)) == json.loads(plain)
    assert json.loads(plain)["teams"] == [["nlp", "N", 7], ["serving", "S", 3], ["vision", "V", 1]]


def test_a_pods_page_begins_with_what_it_does_now(page):
    body = page.get("/explain?namespace=nlp&name=later")[1]
    now, _, rest = body[body.index("<main") :].partition("Step by step")
    for fact in (
        "Is queued",
        "1st in the queue of team nlp, 1st of all",
        "2026-11-22T09:30:00Z",
        "earlier waits",
        "last 2: 60s to 30m",
    ):
        assert fact in now, fact
    assert "It is queued." in rest
    body = page.get("/explain?namespace=vision&name=train-0")[1]
    now, _, rest = body[body.index("<main") :].partition("If it were created now")
    for fact in ("Starts", 'href="/?node=gpu-1"', "guaranteed", 'href="/search?q=train"', "alice"):
        assert fact in now, fact
    assert "It would be" in rest
    assert "earlier waits" not in now


def test_times_are_exact_on_hover_and_owners_nodes_and_holders_are_links(page):
    body = page.get("/")[1]
    assert '<time datetime="2026-11-22T09:00:00Z" title="2026-11-22T09:00:00Z">' in body
    assert 'href="/search?q=train" title="Job/train"' in body
    assert 'href="/?node=gpu-1"' in body
    line = page.get("/queue")[1]
    assert 'title="since 2026-11-22T09:30:00Z"' in line
    assert 'href="/search?q=llm" title="nlp/Pod/llm"' in line


@pytest.mark.parametrize(("query", "shown"), [("node=GPU-1", 2), ("node=no-such", 0), ("node=<script>", 0)])
def test_nodes_are_found_by_a_part_of_their_name_without_scripts(page, query, shown):
    status, body = page.get(f"/?{query}")
    assert (status, body.count('<tr>\n<th scope="row"><a class="name"')) == (200, shown)
    assert "<script>" not in body


def test_the_line_has_the_columns_of_fairgate_queue(page):
    body = page.get("/queue")[1]
    assert [f">{column.heading}</th>" in body for column in COLUMNS] == [True] * len(COLUMNS)


@pytest.mark.parametrize("page_number", ["0", "-1", "99999999999999999999", "x", "\N{FULLWIDTH DIGIT ONE}", ""])
def test_whatever_page_is_asked_for_there_is_one(page, page_number):
    assert page.get(f"/decisions?page={quote(page_number)}")[0] == 200


class Recorded:
    """Use that was recorded of one team."""

    why_not = ""

    def last_day(self, now):
        return {"vision": [Point(now - 3600, 4, 0), Point(now - 60, 12, 4)]}


def test_a_department_has_the_line_of_its_teams():
    class Both(Recorded):
        def last_day(self, now):
            return {"vision": [Point(now - 3600, 4, 0), Point(now - 60, 12, 4)], "nlp": [Point(now - 60, 3, 0)]}

    text = f"{sample_world.POLICY}departments:\n  - {{name: research, gpus: {{limit: 64}}}}\n"
    text = text.replace("- name: vision", "- name: vision\n    department: research")
    text = text.replace("- name: nlp", "- name: nlp\n    department: research")
    with served(state_of(policy=policy_of(text)), history=Both()) as page:
        page.enter()
        body = page.get("/teams")[1]
        assert "least 4, mean 9.5, most 15 GPUs" in body


def test_the_last_day_is_drawn_where_it_is_recorded_and_else_said_to_be_missing():
    history = Recorded()
    with served(state_of(), history=history) as page:
        page.enter()
        body = page.get("/teams")[1]
        assert "least 4, mean 8, most 12 GPUs" in body
        assert body.count("no use recorded") == 2
        history.why_not = "no server records <history>"
        body = page.get("/teams")[1]
        assert "no server records &lt;history&gt;" in body
        assert "polyline" not in body


def test_a_state_that_is_out_of_date_says_since_when():
    state = state_of()
    state.why_stale = lambda: "pods: no event from the API server for 130 s"
    with served(state) as page:
        page.enter()
        assert "Out of date:" in page.get("/teams")[1]


def test_pods_that_do_not_use_their_gpus_are_listed_where_that_is_measured(page):
    assert "Held and not used" not in page.get("/teams")[1]
    with served(idle_state()) as measured:
        measured.enter()
        body = measured.get("/teams")[1]
        assert "Held and not used" in body
        assert all(name in body for name in ("train-0", "eval"))
        assert '<td class="number" data-label="unused">8</td>' in body


def test_the_teams_view_has_the_workloads_that_are_to_keep_some_replicas():
    with served(scaled_state()) as scaled:
        scaled.enter()
        body = scaled.get("/teams")[1]
        assert "Minimums of replicas" in body
        assert body.count('<td class="number" data-label="may go">1</td>') == 2
        assert "replicas ready: 3, minimum: 2; 1 may be evicted first" in body


def test_without_a_minimum_the_teams_view_has_no_such_table(page):
    assert "Minimums of replicas" not in page.get("/teams")[1]


def test_pods_without_a_decision_are_on_the_map_and_among_the_teams():
    past = b.pod("past", namespace="vision", gpus=2, node="gpu-1")
    with served(state_of([*sample_objects(), past])) as page:
        page.enter()
        assert "2 GPUs came without a decision of Fairgate" in page.get("/")[1]
        body = page.get("/teams")[1]
        assert 'id="bypassed"' in body
        assert "vision/past" in body
        assert "when it came Fairgate was off, did not enforce or was left out" in body


def test_the_map_says_what_a_team_could_claim_as_the_status_does(page):
    rows = {(row.model, row.resource): row for row in board_of(state_of().world).free}
    body = page.get("/")[1]
    cells = re.findall(r'data-label="by reclaim">([^<]*)<', body)
    assert sorted(cells) == sorted(row.reclaim_text for row in rows.values())
    assert sum(len(row.claimants) for row in rows.values()) == sum(
        cell.count('class="team"') for cell in re.findall(r'data-label="for teams">(.*?)</td>', body)
    )


async def test_a_pod_is_explained_while_the_api_server_is_away(tmp_path):
    state = state_of()
    away = Cluster(write_kubeconfig(tmp_path / "config", "http://127.0.0.1:9"))
    answers = CommandAnswers(state, Snapshots(seconds=60), cluster=away)
    found = await answers.explain("nlp", "later", Readable(state, EVERYTHING))
    assert found.is_queued
    assert "Events, budgets and the evictor's Lease were not read" in found.text


def test_the_line_and_the_page_of_a_pod_say_the_same_of_it(page):
    line, body = page.get("/queue")[1], page.get("/explain?namespace=nlp&name=later")[1]
    cell = re.search(r'data-label="waits" class="number">\s*<time[^>]*>([^<]+)</time>', line)[1]
    assert f">{cell} ago</time>" in body
    cause = re.search(r'data-label="waits for">\s*([^<]+) <a class="code"', line)[1]
    assert f"<li>{cause} <a" in body
    now = body.partition('id="now"')[2].partition("</section>")[0]
    assert "waits: " not in now
    assert (now.count("Is queued"), now.count(" in the queue")) == (1, 1), "its state and its place, once each"


def test_a_code_leads_to_its_cause_and_remedy(page):
    body = page.get("/explain?namespace=nlp&name=later")[1]
    address = re.search(r'<a class="code" href="([^"]+)"><code>WaitsFor', body)[1]
    assert "What to do:" in body
    status, code = page.get(address)
    assert status == 200
    assert "<h2>Cause</h2>" in code
    assert "<h2>What to do</h2>" in code
    assert page.get("/code?name=<x>")[0] == 404
    assert "`" not in re.sub(r"<[^>]+>", "", page.get("/code?name=TeamLimitExceeded")[1])


def test_a_pods_page_has_its_limits_as_bars_and_the_command_below(page):
    body = page.get("/explain?namespace=nlp&name=later")[1]
    assert '<svg class="bar' in body.partition("<h2>Limits</h2>")[2]
    assert re.search(r"team nlp: \S+ GPUs in use, \S+ with this pod, of \S+", body)
    assert "<pre" not in body.partition("<details>")[0]
    assert "<pre" in body.partition("<details>")[2]


GANG = [waiting(f"dist-{number}", gpus=2, created="2026-11-22T09:50:00Z") for number in range(3)]


@pytest.fixture(scope="module")
def gang():
    objects = [*sample_objects(), *json.loads(json.dumps(GANG))]
    for each in objects[-3:]:
        each["metadata"]["annotations"]["fairgate.dev/gang"] = "true"
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "dist", "uid": "u", "controller": True}
        each["metadata"]["ownerReferences"] = [owner]
    with served(state_of(objects)) as found:
        found.enter()
        yield found


def rows_of(body):
    return body.partition("<tbody>")[2].partition("</tbody>")[0].count("<tr")


def test_a_gang_in_line_is_one_row_that_opens(gang):
    body = gang.get("/queue")[1]
    assert "5 pods wait in the queue" in body
    assert rows_of(body) == 3
    row = body.partition("<summary>gang of 3</summary>")
    assert all(f"name=dist-{number}" in row[2].partition("</details>")[0] for number in (1, 2))
    assert '<td data-label="GPUs" class="number">6</td>' in row[2]


def test_the_line_is_filtered_by_team_and_user(gang):
    assert rows_of(gang.get("/queue?of=nlp&user=ALI")[1]) == 3
    body = gang.get("/queue?of=vision")[1]
    assert "0 pods wait in the queue" in body
    assert "not listed here" not in body
    assert rows_of(gang.get("/queue?user=bob")[1]) == 0


def test_refusals_and_evictions_are_before_admissions(page):
    event = {
        "metadata": {"name": "e1", "namespace": "vision"},
        "source": {"component": "fairgate"},
        "reason": "Refused",
        "message": "exceeded quota",
        "involvedObject": {"kind": "Pod", "name": "old"},
        "lastTimestamp": "2026-11-20T10:00:00Z",
    }
    page.call(lambda: note_event(event, page.state))
    table = page.get("/decisions")[1].partition("<tbody>")[2]
    assert table.index("exceeded quota") < table.index('data-label="decision">admitted')


def test_what_needs_a_look_is_on_the_map_and_on_teams():
    lowered = sample_world.POLICY.replace("limit: 24", "limit: 12")
    with served(state_of(policy=policy_of(lowered))) as found:
        found.enter()
        assert "Over its limit:" in found.get("/")[1]
        assert found.get("/teams")[1].count("over its limit") == 1
    with served(idle_state()) as measured:
        measured.enter()
        assert re.search(r'<a href="/teams#idle">2 pods</a> hold GPUs and do not use them', measured.get("/")[1])
        assert 'id="idle"' in measured.get("/teams")[1]


def test_every_view_has_the_one_search(page):
    for path in ("/", "/teams", "/queue", "/decisions", "/search?q=train", "/review"):
        body = page.get(path)[1]
        assert body.count('action="/search"') == 1, path
    assert 'name="q" value="train"' in page.get("/search?q=train")[1]
