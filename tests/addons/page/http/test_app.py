"""The page over real HTTP: who gets in, what is sent with each response, hostile names, and bounds on requests."""

import html
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from urllib.parse import quote, urlencode

import pytest

from tests import builders as b
from tests.addons.page.support.pages import FORM, decided, named, sample_objects, served, state_of, waiting
from tests.cli import sample_world
from webhook.addons.page.http.templates import MOST_BYTES
from webhook.addons.page.live.hub import CLIENTS_OF_ONE
from webhook.addons.page.root import BOUNDS
from webhook.addons.page.views.teams import Viewer

VIEWS = ["/", "/teams", "/queue", "/decisions", "/search?q=train", "/explain?namespace=vision&name=train-0", "/review"]
EVIL = "<script>alert(1)</script>"
EVIL_NAMES = (EVIL, '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "{{ 7*7 }}", "</textarea><b>")


@pytest.fixture(scope="module")
def page():
    with served(state_of()) as found:
        found.enter()
        yield found


class TwoTokens:
    """An authenticator of the cluster with two known tokens."""

    takes_tokens = True

    def __init__(self):
        nina = Viewer("nina", frozenset({"nlp"}), ("a note",))
        self.viewers = {"nina": nina, "nobody": Viewer("nobody", frozenset())}

    async def viewer(self, caller):
        return self.viewers.get(caller.bearer or caller.cookie)

    async def sign_in(self, token, origin):
        assert origin.address == "127.0.0.1"
        return token if token in self.viewers else ""

    def sign_out(self, cookie):
        self.signed_out = cookie


@pytest.fixture(scope="module")
def shared():
    with served(state_of(), authenticator=TwoTokens()) as found:
        yield found


def test_the_printed_url_opens_the_page_once_and_nothing_else_does():
    with served(state_of()) as page:
        assert page.get("/")[0] == page.get("/map.json")[0] == page.get("/events")[0] == 401
        assert page.get("/open?token=guess")[0] == 401
        cookie = page.enter()
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert page.get("/")[0] == 200
        assert page.get(page.url.removeprefix(page.base))[0] == 401, "the token is spent"
        page.cookie = page.cookie.replace("=", "=x")
        assert page.get("/")[0] == 401


@pytest.mark.parametrize("path", [*VIEWS, "/map.json", "/static/page.css", "/nothing", "/healthz"])
def test_every_response_has_the_headers_that_protect_it(page, path):
    _, headers, _ = page.request(path)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize("path", VIEWS)
def test_views_have_no_inline_script_or_style(page, path):
    status, body = page.get(path)
    assert status == 200
    for found in (part.partition(">")[0] for part in body.split("<script")[1:]):
        assert "src=" in found
    assert " style=" not in body
    assert " onclick" not in body
    assert "http://" not in body.replace(page.base, "")
    assert "https://" not in body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1:1", "localhost", ""])
def test_a_rebound_name_is_refused_also_with_the_cookie(page, host):
    assert page.request("/", headers={"Host": host})[0] in {400, 421}


def test_a_probe_may_name_the_address_of_the_pod(page):
    assert page.request("/healthz", headers={"Host": "10.0.0.7:8080"})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused(page, headers):
    body = urlencode({"manifest": "kind: Pod"})
    assert page.request("/review", method="POST", body=body, headers=FORM | headers)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/teams", "/map.json", "/explain", "/events"])
def test_nothing_can_be_written(page, method, path):
    assert page.request(path, method=method, body="x=1", headers=FORM)[0] == 405


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/app.py", "/static/..", "/etc"]
)
def test_only_known_files_are_served(page, path):
    assert page.get(path)[0] == 404


def test_hostile_names_are_text_everywhere():
    objects = []
    for number, evil in enumerate(EVIL_NAMES):
        pod = b.pod(f"{evil}-{number}", namespace=evil, node="n1", gpus=1, controller=("Job", evil))
        pod["metadata"]["labels"] = {"fairgate.dev/team": evil, "fairgate.dev/tier": "guaranteed"}
        objects += [decided(pod, node=evil, code=evil), waiting(f"{evil}-w{number}", namespace=evil)]
    node = b.node("n1", gpus=8, model=EVIL, labels={"topology.kubernetes.io/zone": EVIL})
    with served(state_of(named([node, b.node(EVIL, gpus=2), *objects]))) as page:
        page.enter()
        name = quote(f"{EVIL}-0", safe="")
        for path in ("/", "/teams", "/queue", "/decisions", f"/decisions?q={name}&kind={name}", f"/search?q={name}"):
            status, body = page.get(path)
            assert status == 200
            check_escaped(body)
        status, body = page.get(f"/explain?namespace={quote(EVIL, safe='')}&name={name}")
        assert status == 200
        check_escaped(body)
        assert "alert(1)" in html.unescape(body)
        form = urlencode({"manifest": EVIL_NAMES[-1], "namespace": EVIL, "user": EVIL})
        status, _, body = page.request("/review", method="POST", body=form, headers=FORM)
        assert status == 200
        check_escaped(body)
        assert "49" not in body.replace(page.base, "")[: body.index("<main")]


def check_escaped(body):
    assert "<script>" not in body
    assert "<img" not in body
    assert "' onmouseover='" not in body
    assert "</textarea><b>" not in body


def test_would_this_run_is_answered_and_nothing_stays(page):
    pod = b.pod("mine", namespace="vision", gpus=2, resource=sample_world.SHARED)
    form = urlencode({"manifest": json.dumps(pod), "namespace": "", "user": "alice"})
    answers = [page.request("/review", method="POST", body=form, headers=FORM) for _ in range(3)]
    assert {status for status, _, _ in answers} == {200}
    assert all("admitted" in body and "t4-1" in body for _, _, body in answers)
    assert page.state.world.usage("vision").total == state_of().world.usage("vision").total


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        ("{", "not readable"),
        ("a: [", "not readable"),
        ("kind: ConfigMap\napiVersion: v1", "nothing in it that creates pods"),
        ("x: &a [*a]", ""),
        ("[" * 5000, "not readable"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: vision}, spec: {containers: []}}", "admitted"),
    ],
)
def test_whatever_is_pasted_gets_an_answer(page, manifest, want):
    status, _, body = page.request("/review", method="POST", body=urlencode({"manifest": manifest}), headers=FORM)
    assert status == 200
    assert want in body


def test_a_bomb_of_aliases_and_a_million_pods_end_in_time(page):
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    job = b.pod("x")["spec"]
    many = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "huge", "namespace": "vision"},
        "spec": {"parallelism": 10**9, "completions": 10**9, "template": {"spec": job}},
    }
    for manifest in (f"a0: &a0 [x]\n{levels}\nkind: Pod", json.dumps(many)):
        body = urlencode({"manifest": manifest})
        status, _, answer = page.request("/review", method="POST", body=body, headers=FORM)
        assert status in {200, 503}, answer
    assert page.get("/teams")[0] == 200


def test_a_form_that_is_too_long_or_of_another_kind_is_refused(page):
    body = urlencode({"manifest": "x" * (MOST_BYTES + 1)})
    status, _, text = page.request("/review", method="POST", body=body, headers=FORM)
    assert (status, "KiB" in text) == (413, True)
    status, _, _ = page.request("/review", method="POST", body="{}", headers={"Content-Type": "application/json"})
    assert status == 415


def test_streams_without_end_are_refused_and_the_page_goes_on():
    with served(state_of()) as page:
        page.enter()
        held = []
        for number in range(CLIENTS_OF_ONE + 3):
            connection = HTTPConnection("127.0.0.1", page.port, timeout=10)
            connection.request("GET", "/events", headers={"Cookie": page.cookie})
            held.append(connection)
            assert connection.getresponse().status == (200 if number < CLIENTS_OF_ONE else 503)
        assert page.get("/")[0] == 200
        for connection in held:
            connection.close()


def test_silent_connections_keep_no_one_from_the_page():
    with served(state_of()) as page, ExitStack() as stack:
        page.enter()
        for number in range(BOUNDS.connections + 50):
            address = f"127.0.{number // 250}.{number % 250 + 2}"
            stack.enter_context(socket.create_connection(("127.0.0.1", page.port), source_address=(address, 0)))
        assert page.get("/healthz")[0] == page.get("/teams")[0] == 200


def test_half_a_request_holds_up_no_one(page):
    with closing(socket.create_connection(("127.0.0.1", page.port))) as slow:
        slow.sendall(b"POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        assert page.get("/teams")[0] == 200


def test_who_may_list_pods_of_one_namespace_sees_that_one(shared):
    bearer = {"Authorization": "Bearer nina"}
    bodies = {
        path: shared.request(path, headers=bearer)[2] for path in ("/", "/teams", "/queue", "/decisions", "/map.json")
    }
    for path, body in bodies.items():
        for hidden in ("train-0", "api-0", "vision/"):
            assert hidden not in body, path
    assert "nlp/llm" in bodies["/"]
    assert "a note" in bodies["/"]
    assert '"gpu-1"' not in bodies["/map.json"]
    assert shared.request("/explain?namespace=vision&name=train-0", headers=bearer)[0] == 404
    assert shared.request("/explain?namespace=nlp&name=llm", headers=bearer)[0] == 200
    for manifest in (b.pod("x"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nlp"}}):
        form = urlencode({"manifest": json.dumps(manifest), "namespace": "nlp"})
        answer = shared.request("/review", method="POST", body=form, headers=bearer | FORM)[2]
        assert "not judged" in answer


def test_one_of_several_viewers_cannot_keep_the_answers_busy(shared):
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 6))
    body = urlencode({"manifest": f"a0: &a0 [x]\n{levels}\n" + "---\n" * 20_000})
    headers = FORM | {"Authorization": "Bearer nina"}
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(shared.request, "/review", method="POST", body=body, headers=headers) for _ in range(12)]
        found = [each.result() for each in asked]
    assert {status for status, _, _ in found} <= {200, 503}
    assert any("earlier questions" in text for _, _, text in found)
    assert shared.request("/teams", headers=headers)[0] == 200


def test_who_may_read_no_pods_gets_a_page_that_says_so(shared):
    for path in ("/", "/teams", "/map.json", "/events", "/review"):
        status, _, body = shared.request(path, headers={"Authorization": "Bearer nobody"})
        assert status == 403
        assert "may not list pods" in body
        assert "train" not in body


def test_a_token_is_taken_once_by_a_form(shared):
    assert shared.get("/")[0] == 401
    status, _, body = shared.request("/sign-in", method="POST", body=urlencode({"token": "bad"}), headers=FORM)
    assert (status, "does not accept this token" in body) == (401, True)
    status, headers, body = shared.request("/sign-in", method="POST", body=urlencode({"token": "nina"}), headers=FORM)
    assert status == 200
    assert "SameSite=Strict" in headers["Set-Cookie"]
    assert 'content="0; url=/"' in body
    cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
    assert shared.request("/teams", headers=cookie)[0] == 200
    assert "Secure" not in headers["Set-Cookie"]
    forwarded = FORM | {"X-Forwarded-Proto": "https"}
    _, headers, _ = shared.request("/sign-in", method="POST", body=urlencode({"token": "nina"}), headers=forwarded)
    assert "Secure" in headers["Set-Cookie"]


def test_who_signed_in_may_sign_out_and_no_other_site_does_it_for_them(shared):
    _, headers, _ = shared.request("/sign-in", method="POST", body=urlencode({"token": "nina"}), headers=FORM)
    cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
    assert 'action="/sign-out"' in shared.request("/teams", headers=cookie)[2]
    assert 'action="/sign-out"' not in shared.request("/teams", headers={"Authorization": "Bearer nina"})[2]
    foreign = cookie | {"Origin": "https://evil.example"}
    assert shared.request("/sign-out", method="POST", headers=foreign)[0] == 403
    status, headers, body = shared.request("/sign-out", method="POST", headers=cookie)
    assert (status, "A bearer token of the cluster" in body) == (200, True)
    assert "Max-Age=0" in headers["Set-Cookie"]
    assert shared.authenticator.signed_out == "nina"


def test_a_sign_in_leads_to_the_address_that_was_asked_for(shared):
    status, body = shared.get("/decisions?q=a%22b&kind=admitted&secret=x")
    assert (status, 'name="address" value="/decisions?q=a%22b&amp;kind=admitted"' in body) == (401, True)
    assert 'name="address" value="/queue"' in shared.get(f"/sign-in?{urlencode({'address': '/queue'})}")[1]
    for address, want in {"/queue?team=nlp": "/queue?team=nlp", "//evil.example/": "/", "/events": "/"}.items():
        form = urlencode({"token": "nina", "address": address})
        assert f'url={want}"' in shared.request("/sign-in", method="POST", body=form, headers=FORM)[2]
        form = urlencode({"token": "bad", "address": address})
        body = shared.request("/sign-in", method="POST", body=form, headers=FORM)[2]
        assert f'name="address" value="{want}"' in body, "a second try leads there, too"


def test_a_page_that_lost_its_stream_can_ask_whether_to_connect_again(shared):
    bearer = {"Authorization": "Bearer nina"}
    assert [shared.request("/signed-in", headers=each)[0] for each in (bearer, {})] == [204, 401]


def test_a_team_that_is_not_ones_own_is_not_highlighted(shared):
    body = shared.request("/queue?team=vision", headers={"Authorization": "Bearer nina"})[2]
    assert "vision" not in body
    assert 'class="others"' not in body


def test_what_cannot_be_shown_is_said_instead():
    state = state_of(sample_objects())
    state.problem = "you may not list nodes, pods, namespaces or TeamLedgers"
    with served(state) as page:
        page.enter()
        for path in ("/", "/map.json", "/events"):
            status, body = page.get(path)
            assert (status, "you may not list nodes" in body) == (403, True)
