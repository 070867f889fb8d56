"""The page in a real Chromium: every view, live updates, keyboard, without scripts, narrow, dark, and axe's rules."""

import os
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe

from tests import builders as b
from tests.addons.page.support.pages import decided, named, served, state_of
from tests.addons.page.support.pictures import cluster_objects, cluster_policy
from tests.addons.page.support.windows import DARK, LIVE, NARROW, WIDE, opened_at
from tests.core.support import make
from webhook.addons.page.live.cluster_state import note_pod
from webhook.core.explain.line_rows import EarlierWaits, TeamWaits
from webhook.core.model.amounts import ONE_GPU, NodeName, TeamName, Uid
from webhook.kube.objects import objects
from webhook.kube.pod.existing import to_resident

VIEWS = {
    "map": "/",
    "teams": "/teams",
    "line": "/queue",
    "decisions": "/decisions",
    "moves": "/moves",
    "search": "/search?q=train",
    "explain": "/explain?namespace=nlp&name=later",
    "review": "/review",
}
DOCS = Path(__file__).parents[3] / "docs" / "images"
PLAIN = {"java_script_enabled": False}
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}  # not each element that passes
POD = """apiVersion: v1
kind: Pod
metadata: {name: x, namespace: vision}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}
"""


@pytest.fixture(scope="module")
def site():
    """A page that all tests of the module share; its cookie is put into each window."""
    with served(state_of()) as found:
        found.enter()
        yield found


@pytest.fixture
def look(site, window):
    """Open a view in a window that has the cookie."""
    return lambda path, **options: opened_at(site, window, path, **options)


@contextmanager
def pod_on(site, name, node):
    """Have a pod with 8 shares, of 2 GPUs, on a node until the end of the block, as the watch would."""
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    asks = {"gpus": 8, "resource": "nvidia.com/gpu.shared"}
    made = decided(b.pod(name, namespace="vision", node=node, labels=labels, **asks), gpus="2", node=node)
    [made] = named([made])

    encoded = msgspec.json.encode(made)

    def appear():
        state = site.state
        resources = state.world.policy.resources
        state.world.set_pod(to_resident(msgspec.json.decode(encoded, type=objects.Pod), resources))
        state.reading.objects.set(made)
        note_pod(made, state)
        state.touch(NodeName(node))

    def disappear():
        site.state.world.remove_pod(Uid(made["metadata"]["uid"]))
        site.state.touch(NodeName(node))

    site.call(appear)
    try:
        yield
    finally:
        site.call(disappear)


@pytest.mark.parametrize("options", [WIDE, DARK | NARROW], ids=["1440", "dark and 390"])
def test_every_view_keeps_the_rules_of_axe_and_fits_and_loads_nothing_from_elsewhere(look, site, options):
    opened = look("/", **options)
    page = opened.page
    for path in (*VIEWS.values(), "/?team=nlp", "/teams?team=nlp", "/queue?team=vision", "/decisions?team=vision"):
        page.goto(site.base + path)
        found = Axe().run(page, options=RULES).response["violations"]
        assert [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found] == [], path
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"], "only tables scroll sideways"
    assert {urlsplit(url).netloc for url in opened.asked} == {urlsplit(site.base).netloc}


def test_the_printed_url_leads_to_the_map_and_the_cookie_stays(window):
    with served(state_of()) as fresh:
        opened = window()
        page = opened.page
        page.goto(fresh.url)
        page.wait_for_url(f"{fresh.base}/")
        page.wait_for_selector("#map[data-drawn-ms] canvas")
        assert "token" not in page.evaluate("location.href")
        page.goto(f"{fresh.base}/teams")
        assert page.inner_text("h1") == "Teams and departments"


def test_a_pod_that_comes_and_goes_is_seen_at_once_without_loading_the_page(look, site):
    page = look("/").page
    page.select_option("#map-sort", "name")
    page.select_option("#map-group", "")
    page.wait_for_function(LIVE)
    heading = page.inner_text("#map h2")
    other = look("/decisions").page
    with pod_on(site, "newcomer", "t4-1"):
        page.wait_for_function("old => document.querySelector('#map h2').textContent !== old", arg=heading)
        assert page.get_attribute("#map", "data-update-ms"), "the time of the last update is shown"
        other.wait_for_selector("text=vision/newcomer")
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1
    page.wait_for_function("old => document.querySelector('#map h2').textContent === old", arg=heading)


def test_the_page_of_a_pod_follows_it_until_it_ends(look, site):
    opened = look("/")
    page = opened.page
    with pod_on(site, "starting", "t4-1"):
        page.goto(f"{site.base}/explain?namespace=vision&name=starting")
        page.wait_for_function(LIVE)
        page.wait_for_selector("#pod .state.bound")
        running = dict(site.state.reading.objects.get("Pod", "vision/starting"), kind="Pod")
        running["status"] = {"phase": "Running", "startTime": "2026-11-22T09:00:10Z"}
        site.call(lambda: (site.state.reading.objects.set(running), site.state.touch()))
        page.wait_for_selector("#pod .state.running")
        site.call(lambda: (site.state.reading.objects.remove("Pod", "vision/starting"), site.state.touch()))
        page.wait_for_selector("text=There is no such pod with GPUs that you may see")
        opened.errors.clear()  # 404 is how it is said
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_the_map_is_read_by_keyboard_and_pointer_and_leads_to_the_pod(look):
    page = look("/").page
    page.select_option("#map-group", "")
    page.select_option("#map-sort", "name")
    canvas = page.locator("#map canvas")
    canvas.focus()
    first = page.inner_text("#map-says")
    assert first.startswith("gpu-1, nvidia.com/gpu 1 of 8: ")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#map-says").startswith("gpu-2, nvidia.com/gpu 1 of 8: ")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#map-says").startswith("gpu-1, nvidia.com/gpu 8 of 8: ")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#map-says").startswith("mig-1, nvidia.com/mig-3g.40gb 9 of 9: "), "gpu-2 is at the right"
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#map-says").startswith("mig-1, nvidia.com/mig-1g.10gb 1 of 9: ")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + 8)
    said = page.inner_text("#map-says")
    assert said == first
    assert ": vision/train-0, team vision, guaranteed, of Job/train, alice, since " in said
    page.mouse.click(box["x"] + 8, box["y"] + 8)
    page.wait_for_url("**/explain?**")
    assert "Step by step" in page.inner_text("main")


def test_the_place_of_the_keyboard_stays_when_a_node_comes_and_is_scrolled_to(look, site):
    page = look("/?group=none&sort=name", viewport={"width": 390, "height": 400}).page
    page.wait_for_function(LIVE)
    page.locator("#map canvas").focus()
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    place = page.inner_text("#map-says").partition(":")[0]
    assert "gpu-1," not in place
    assert page.evaluate("scrollY") > 0
    site.call(lambda: (site.state.world.set_node(make.node("aaa", gpus=8)), site.state.touch(NodeName("aaa"))))
    try:
        page.wait_for_function("() => document.querySelector('#map h2').textContent.includes('8 nodes')")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#map-says").partition(":")[0] == place
    finally:
        site.call(lambda: (site.state.world.remove_node(NodeName("aaa")), site.state.touch(NodeName("aaa"))))


def test_a_refresh_keeps_the_selection_and_the_focus(look, site):
    page = look("/decisions").page
    page.wait_for_function(LIVE)
    page.evaluate("""() => { const row = document.querySelector('#decisions tbody tr');
        const link = row.querySelector('a');
        link.focus();
        getSelection().selectAllChildren(row.querySelector('td.text'));
        window.kept = [link, getSelection().toString()]; }""")
    with pod_on(site, "newcomer", "t4-1"):
        page.wait_for_selector("text=vision/newcomer")
        same = "() => document.activeElement === window.kept[0] && getSelection().toString() === window.kept[1]"
        assert page.evaluate(same)
        assert page.evaluate("window.kept[1].length") > 10


def test_the_canvas_shows_solid_hatched_free_and_shared(look):
    page = look("/").page
    page.select_option("#map-group", "model")
    counts = page.evaluate(
        """() => [...document.querySelectorAll('#map canvas')].map(canvas => {
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const colors = new Map();
            for (let at = 0; at < data.length; at += 4) {
                const key = [data[at], data[at + 1], data[at + 2]].join();
                colors.set(key, (colors.get(key) ?? 0) + 1);
            }
            return [...colors].filter(([, count]) => count > 100).map(([color]) => color);
        })"""
    )
    red, olive, indigo = "176,28,7", "169,165,46", "83,0,240"
    assert {red, olive, indigo} <= {color for colors in counts for color in colors}


def test_groups_of_the_map(look):
    page = look("/").page
    page.select_option("#map-group", "model")
    names = [text.partition(":")[0] for text in page.locator("#map h2").all_inner_texts()]
    assert names == ["NVIDIA-A100-SXM4-80GB", "Tesla-T4"]
    page.select_option("#map-group", "domain")
    assert page.locator("#map h2").all_inner_texts() == ["no domain: 7 nodes, 45.86 GPUs, 3 wholly free"]


def test_without_scripts_every_view_is_complete(look, site):
    page = look("/", **PLAIN).page
    for view, path in VIEWS.items():
        page.goto(site.base + path)
        assert page.locator("h1").count() == 1, view
        assert "Without scripts this page is complete" in page.inner_text("noscript")
    page.goto(site.base)
    assert page.locator("#nodes tbody tr").count() == len(site.state.rows)
    assert page.locator("#nodes .part").count() > 20
    page.goto(f"{site.base}/review")
    page.fill("#manifest", POD)
    page.click("text=Ask")
    assert "admitted" in page.inner_text("#answer")


def test_decisions_are_filtered_and_a_click_explains(look):
    page = look("/decisions").page
    page.fill("main input[name=q]", "train")
    page.click("text=Filter")
    rows = page.locator("#decisions tbody tr")
    assert rows.count() > 0
    assert all("train" in text for text in rows.all_inner_texts())
    page.locator("#decisions tbody a").first.click()
    page.wait_for_url("**/explain?**")
    page.click("text=Step by step")
    assert "team" in page.inner_text("pre")


def test_hostile_names_run_no_script_and_break_no_page(window):
    evil = "<img src=x onerror=document.title='owned'>"
    made = b.pod(evil, namespace=evil, node="n1", gpus=4, labels={"fairgate.dev/team": evil, "fairgate.dev/tier": "x"})
    with served(state_of(named([b.node("n1", gpus=8, model=evil), decided(made, code=evil)]))) as hostile:
        opened = window()
        page = opened.page
        page.goto(hostile.url)
        page.wait_for_selector("#map[data-drawn-ms] canvas")
        page.locator("#map canvas").first.focus()
        assert evil in page.inner_text("#map-says")
        for path in ("/", "/teams", "/queue", "/decisions", "/search?q=img"):
            page.goto(hostile.base + path)
            assert page.title() != "owned"
        assert {urlsplit(url).netloc for url in opened.asked} == {urlsplit(hostile.base).netloc}


def test_a_page_whose_server_ends_says_so(window):
    with served(state_of()) as ending:
        opened = window()
        opened.page.goto(ending.url)
        opened.page.wait_for_function(LIVE)
    opened.page.wait_for_function("() => document.getElementById('connection').textContent.startsWith('not connected')")
    opened.errors.clear()  # of the connection that ended


PICTURES = {
    "page-map.png": ("/", {"viewport": {"width": 1200, "height": 860}}),
    "page-teams.png": ("/teams", {"viewport": {"width": 1200, "height": 640}}),
    "page-queue.png": ("/queue", {"viewport": {"width": 1200, "height": 420}}),
    "page-explain.png": (VIEWS["explain"], {"viewport": {"width": 1000, "height": 800}}),
}


@pytest.mark.skipif(os.environ.get("GOLDEN") != "write", reason="GOLDEN=write renews the pictures")
def test_the_pictures_are_made(window):
    state = state_of(cluster_objects(), policy=cluster_policy())
    state.origin = "cluster https://gpus.example.org:6443"
    waits = tuple(range(420, 2_400, 99))
    state.waits = EarlierWaits(TeamWaits(TeamName("nlp"), gpus * ONE_GPU, waits) for gpus in (1, 2, 4, 8))
    with served(state) as gallery:
        gallery.enter()
        for name, (path, options) in PICTURES.items():
            opened = opened_at(gallery, window, path, **options)
            page = opened.page
            page.wait_for_function(LIVE)
            if name == "page-map.png":
                page.locator("#map canvas").first.hover(position={"x": 30, "y": 10})
            page.screenshot(path=DOCS / name, scale="css")


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documentation_are_small(name):
    found = (DOCS / name).read_bytes()
    assert found.startswith(b"\x89PNG")
    assert len(found) < 150_000
