"""The page beside a real cluster: live, with a user's rights, behind the API server's own, and what it costs."""

from __future__ import annotations

import json
import re
import subprocess
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode

import pytest

from tests.addons.page.conftest import Window, browser  # noqa: F401 - a fixture
from tests.addons.page.support.pages import FORM
from tests.charts.helm import NAMESPACE, kinds, render
from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
)
from tests.scenarios.serving import FAIRGATE, ROOT
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "4Gi"}


class Page:
    """A page that runs as a process; requests are those of a plain client."""

    def __init__(self, url):
        self.url = url
        self.base = url.partition("/open")[0].rstrip("/")
        self.headers = {}

    def request(self, path, *, method="GET", body=None, headers=None):
        host = self.base.removeprefix("http://")
        connection = HTTPConnection(host, timeout=90)
        connection.request(method, path, body=body, headers={**self.headers, **(headers or {})})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def get(self, path, **more):
        status, _, body = self.request(path, **more)
        return status, body

    def enter(self):
        _, headers, _ = self.request(self.url.removeprefix(self.base))
        self.headers["Cookie"] = headers["Set-Cookie"].partition(";")[0]


@contextmanager
def running_page(kubeconfig, *flags):
    """`fairgate page` until the end of the block."""
    command = [*map(str, FAIRGATE), "page", "--no-browser", "--kubeconfig", str(kubeconfig), *map(str, flags)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            line = process.stdout.readline()
            url = re.search(r"http\S+", line)
            assert url, line + process.stdout.read()
            yield Page(url[0])
        finally:
            process.terminate()
            assert process.wait(90) == 0, "SIGTERM ends it normally"


def wait_shown(cluster, page, path, text, **more):
    wait_for(cluster, lambda: text in page.get(path, **more)[1], what=f"{text} on {path}")


def test_a_pod_is_seen_at_once_in_the_browser_and_explained(cluster, browser):  # noqa: F811 - the fixture
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate, running_page(cluster.kubeconfig) as page:
        team = fairgate.team_a
        opened = Window(browser)
        opened.page.goto(page.url)
        opened.page.wait_for_selector("#map[data-drawn-ms] canvas", timeout=60_000)
        opened.page.wait_for_function("() => document.getElementById('connection').textContent === 'live'")
        heading = opened.page.locator("#map h2").first
        before = heading.inner_text()
        assert "20 wholly free" in before
        create_pod(cluster, team, pod("seen", gpus=4, **SIZE))
        wait_bound(cluster, team, "seen")
        opened.page.wait_for_function("() => document.querySelector('#map h2').textContent.includes('16 wholly free')")
        assert opened.page.get_attribute("#map", "data-update-ms"), "by an update, without loading"

        refused = job("wide", pods=1, gpus=10, **SIZE)
        refused["spec"]["parallelism"] = refused["spec"]["completions"] = 3
        cluster.kubectl.apply([refused], "-n", team)
        opened.page.goto(f"{page.base}/decisions?q=seen")
        opened.page.wait_for_selector(f"#decisions >> text={team}/seen")
        opened.page.locator("#decisions a").first.click()
        opened.page.wait_for_url("**/explain?**")
        said = cluster.kubectl("get", "pod", "seen", "-n", team, "-o", "jsonpath={.spec.nodeName}")
        explained = opened.page.text_content("pre")
        assert f" on {said}, since 20" in explained
        assert "Z. Admitted as guaranteed" in explained
        opened.page.goto(f"{page.base}/decisions?kind=refused")
        opened.page.wait_for_selector("#decisions >> text=exceeded quota", timeout=60_000)

        opened.page.goto(f"{page.base}/review")
        opened.page.fill("#manifest", json.dumps(pod("mine", gpus=30, **SIZE)))
        opened.page.fill("input[name=namespace]", team)
        opened.page.click("text=Ask")
        assert "refused" in opened.page.inner_text("#answer")
        assert [
            found["metadata"]["name"] for found in list_pods(cluster, team) if "mine" in found["metadata"]["name"]
        ] == []
        assert opened.errors == []
        opened.close()


def test_a_user_of_one_namespace_sees_that_namespace_and_one_without_rights_a_clear_page(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("mine", gpus=2, **SIZE))
        create_pod(cluster, fairgate.team_b, pod("theirs", gpus=6, **SIZE))
        name = f"jo-{fairgate.team_a}"
        cluster.kubectl("create", "rolebinding", name, "--clusterrole=view", f"--user={name}", "-n", fairgate.team_a)
        kubeconfig = cluster.user_kubeconfig(name, namespace=fairgate.team_a)
        with running_page(kubeconfig, "--policy", fairgate.policy) as page:
            page.enter()
            wait_shown(cluster, page, "/search?q=mine", f"{fairgate.team_a}/mine")
            wait_shown(cluster, page, "/decisions?q=mine", f"{fairgate.team_a}/mine")
            status, body = page.get("/teams")
            assert (status, "theirs" in body) == (200, False)
            assert "you may not list" in body
            assert page.get(f"/explain?namespace={fairgate.team_a}&name=mine")[0] == 200
        nobody = cluster.user_kubeconfig(f"nobody-{fairgate.team_a}", namespace=fairgate.team_a)
        with running_page(nobody) as page:
            page.enter()
            wait_shown(cluster, page, "/", "fairgate-viewer")
            assert page.get("/")[0] == 403


@pytest.mark.usefixtures("helm_binary")
def test_served_to_others_each_sees_what_the_api_server_grants_them(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        mine, theirs = fairgate.team_a, fairgate.team_b
        create_pod(cluster, mine, pod("mine", gpus=2, **SIZE))
        create_pod(cluster, theirs, pod("theirs", gpus=6, **SIZE))
        account = f"system:serviceaccount:{mine}:default"
        binding = ("create", "rolebinding", "reader", "--clusterrole=view")
        cluster.kubectl(*binding, f"--serviceaccount={mine}:default", "-n", mine)
        wait_for(
            cluster,
            lambda: (
                cluster.kubectl("auth", "can-i", "list", "pods", f"--as={account}", "-n", mine, check=False) == "yes\n"
            ),
            what="the right to list pods",
        )
        rights = kinds(render("--set", "page.enabled=true"), "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        wanted = [each for each in rights if each["metadata"]["name"] == "fairgate-page"]
        assert len(wanted) == 3
        if not cluster.api.exists(f"/api/v1/namespaces/{NAMESPACE}"):
            make_namespace(cluster, NAMESPACE)
        cluster.kubectl.apply(wanted)
        kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, "fairgate-page")
        with running_page(kubeconfig, "--serve", "127.0.0.1:0") as page:
            assert page.get("/")[0] == 401
            token = cluster.service_account_token(mine)
            own = {"Authorization": f"Bearer {token}"}
            wait_for(cluster, lambda: f"{mine}/mine" in page.get("/", headers=own)[1], what="the own pod", timeout=90)
            for path in ("/", "/teams", "/queue", "/decisions", "/map.json", "/search?q=theirs"):
                status, body = page.get(path, headers=own)
                assert (status, f"{theirs}/theirs" in body) == (200, False), path
            assert page.get(f"/explain?namespace={theirs}&name=theirs", headers=own)[0] == 404
            address = f"/explain?namespace={mine}&name=mine"
            wait_shown(cluster, page, address, "you may not list all nodes and pods", headers=own)
            explained = page.get(address, headers=own)[1]
            own_node = get_pod(cluster, mine, "mine")["spec"].get("nodeName")
            names = {each["metadata"]["name"] for each in cluster.api.list("/api/v1/nodes")}
            for hidden in (theirs, *(names - {own_node})):
                assert hidden not in explained
            stranger = {"Authorization": f"Bearer {cluster.service_account_token(theirs)}"}
            status, body = page.get("/", headers=stranger)
            assert (status, "may not list pods in any namespace" in body) == (403, True)
            assert page.get("/", headers={"Authorization": "Bearer forged"})[0] == 401
            body = urlencode({"token": cluster.token})
            status, headers, _ = page.request("/sign-in", method="POST", body=body, headers=FORM)
            assert status == 200
            admin = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
            assert f"{theirs}/theirs" in page.get("/", headers=admin)[1]


@pytest.mark.long
def test_ten_open_pages_cost_the_api_server_one_list_and_watch(start_control_plane):
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 2)
    with running_page(cluster.kubeconfig, "--policy", ROOT / "policies" / "default") as page:
        page.enter()
        wait_shown(cluster, page, "/", "node-0")
        streams = []
        for _ in range(10):
            connection = HTTPConnection(page.base.removeprefix("http://"), timeout=90)
            connection.request("GET", "/events", headers=page.headers)
            assert connection.getresponse().status == 200
            streams.append(connection)
        for path in ("/", "/teams", "/queue", "/decisions", "/search?q=node", "/map.json") * 10:
            assert page.get(path)[0] == 200
        time.sleep(1)
        asked = [event for event in cluster.audit_events() if "fairgate" in event.get("userAgent", "")]
        started = [
            each for each in asked if each["stage"] in ("RequestReceived", "ResponseStarted", "ResponseComplete")
        ]
        uris = {each["auditID"]: (each["verb"], each["requestURI"].partition("?")[0]) for each in started}
        watches = [path for verb, path in uris.values() if verb == "watch" and path == "/api/v1/pods"]
        writes = [found for found in uris.values() if found[0] not in ("get", "list", "watch")]
        assert len(watches) == 2, "pods that exist, and pods that failed"
        assert writes == []
        assert len(uris) <= 30, sorted(uris.values())
        for connection in streams:
            connection.close()
