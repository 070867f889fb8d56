"""What a viewer chooses in a real Chromium: a team, a node, grouping; by click, by finger, and in the address."""

import json
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests import builders as b
from tests.addons.page.support.pages import named, sample_objects, served, state_of
from tests.addons.page.support.windows import DARK, NARROW, OVERFLOWING, WIDE, opened_at
from webhook.addons.page.views.teams import Viewer

TINTS = """() => { const map = document.querySelector('#map canvas');
    const canvas = new OffscreenCanvas(map.width, map.height);
    canvas.getContext('2d').drawImage(map, 0, 0);
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const tints = new Set();
    for (let at = 0; at < data.length; at += 4) tints.add(data.slice(at, at + 3).join());
    return [...tints]; }"""
NLP, VISION = "176,28,7", "83,0,240"  # their colors, by their names


@pytest.fixture(scope="module")
def site():
    with served(state_of()) as found:
        found.enter()
        yield found


@pytest.fixture
def look(site, window):
    return lambda path, **options: opened_at(site, window, path, **options)


def chosen(page):
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_a_click_on_a_team_highlights_it_on_the_map_the_line_and_the_decisions(look, site):
    page = look("/").page
    page.select_option("#map-group", "")
    page.locator("#map canvas").blur()
    assert {NLP, VISION} <= set(page.evaluate(TINTS))
    page.click("#teams a[data-team=vision]")
    tints = set(page.evaluate(TINTS))
    assert VISION in tints
    assert NLP not in tints, "other teams are dimmed"
    assert chosen(page) == {"group": "none", "team": "vision"}
    page.wait_for_selector("#nodes li.others")
    page.click("nav >> text=Queue")
    assert chosen(page) == {"team": "vision"}
    assert page.locator("#waiting tbody tr.others").count() == 2, "both are of nlp"
    page.click("text=Decisions")
    teams = page.locator("#decisions tbody tr:not(.others) td[data-label=team]").all_inner_texts()
    assert set(teams) == {"Vvision"}, "with its letter"
    page.locator("#decisions a[aria-current]").first.click()
    page.wait_for_function("() => !document.querySelector('tr.others')")
    page.goto(f"{site.base}/queue?team=vision")
    page.click("text=Show all alike")
    assert chosen(page) == {}
    page.goto(f"{site.base}/queue?team=of-no-one")
    assert page.locator("tr.others").count() == 0


def test_a_node_is_found_on_the_map_and_in_the_table_and_by_its_links(look, site):
    page = look("/").page
    page.fill("#map-node", "gpu-1")
    assert page.inner_text("#map-found") == "2 of 7 nodes"
    page.wait_for_function("() => document.querySelectorAll('#nodes tbody tr').length === 2")
    assert chosen(page) == {"node": "gpu-1"}
    page.goto(f"{site.base}/explain?namespace=vision&name=train-0")
    page.click("#now a[href*='node=gpu-1']")
    page.wait_for_selector("#map[data-drawn-ms]")
    assert page.input_value("#map-node") == "gpu-1"


def test_grouping_and_order_are_in_the_address(look):
    page = look("/").page
    page.select_option("#map-group", "model")
    page.select_option("#map-sort", "name")
    assert chosen(page) == {"group": "model", "sort": "name"}
    page.goto(page.url)
    page.wait_for_selector("#map[data-drawn-ms]")
    assert [page.input_value("#map-group"), page.input_value("#map-sort")] == ["model", "name"]
    names = [text.partition(":")[0] for text in page.locator("#map h2").all_inner_texts()]
    assert names == ["NVIDIA-A100-SXM4-80GB", "Tesla-T4"]


def test_the_first_tap_reads_and_the_second_opens(look):
    page = look("/?group=none&sort=name", **NARROW).page
    canvas = page.locator("#map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.touchscreen.tap(box["x"] + 8, box["y"] + 8)
    page.wait_for_function("() => document.getElementById('map-says').textContent.includes('vision/train-0')")
    page.touchscreen.tap(box["x"] + 8 + 6 * 19, box["y"] + 8)
    page.wait_for_function("() => document.getElementById('map-says').textContent.includes(' 7 of 8')")
    assert page.url.endswith("/?group=none&sort=name"), "another GPU is read first, too"
    page.touchscreen.tap(box["x"] + 8, box["y"] + 8)
    page.touchscreen.tap(box["x"] + 8, box["y"] + 8)
    page.wait_for_url("**/explain?**")


def test_narrow_screens_have_cards_instead_of_tables(look):
    page = look("/queue", **NARROW).page
    assert page.locator("#waiting thead").evaluate("each => getComputedStyle(each).clipPath") == "inset(50%)"
    row = page.locator("#waiting tbody tr").first
    assert "nlp/later" in row.inner_text()
    label = row.locator("td[data-label=GPUs]").evaluate("each => getComputedStyle(each, '::before').content")
    assert label == '"GPUs"'


NEW = [
    b.node(f"a-node-of-a-cloud-with-a-long-name-{number}.eu-central-1.compute.internal", gpus=8) for number in range(3)
]
LONG = "a-user-with-a-long-name@research.example.org"


def new_cluster():
    """A cluster in which no pod has ended yet, with names as clouds and Kubeflow make them; all GPUs are in use."""
    objects = sample_objects()
    for each in objects:
        annotations = each["metadata"].get("annotations", {})
        if each["kind"] == "Pod" and "fairgate.dev/decision" in annotations:
            decision = json.loads(annotations["fairgate.dev/decision"]) | {"user": LONG}
            annotations["fairgate.dev/decision"] = json.dumps(decision)
        if each["metadata"]["name"] == "latest":
            each["metadata"]["name"] = "fine-tune-llama-3-70b-with-long-context-worker-replica-11"
        if each["metadata"]["name"] == "llm":
            each["metadata"]["name"] = "hyperparameter-search-of-november-trial-00017-worker-3"
    return state_of(named([*objects, *NEW]))


@pytest.mark.parametrize("options", [WIDE, WIDE | DARK, NARROW], ids=["1440", "1440 and dark", "390"])
def test_in_a_new_cluster_no_name_is_broken_and_nothing_overflows(window, options):
    with served(new_cluster()) as fresh:
        fresh.enter()
        page = opened_at(fresh, window, "/queue", **options).page
        for path in ("/queue", "/", "/teams", "/decisions", "/search?q=worker"):
            page.goto(fresh.base + path)
            assert page.evaluate(OVERFLOWING) == [], path
        page.goto(fresh.base + "/queue")
        assert page.locator("#waiting td[data-label='earlier waits']").all_inner_texts() == ["-", "-"]
        heights = page.evaluate(
            "() => [...document.querySelectorAll('.line .name span')].map(each => each.getClientRects().length)"
        )
        assert options is NARROW or set(heights) == {1}, "each part of a name is on one line"


def test_a_long_owner_stays_in_its_column_on_the_page_of_a_pod(look_at_long):
    for options in (WIDE, NARROW):
        page = look_at_long(options)
        assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"]
        wide = "() => [...document.querySelectorAll('.facts dd')].filter(dd => dd.scrollWidth > dd.clientWidth).length"
        assert page.evaluate(wide) == 0


@pytest.fixture
def look_at_long(window):
    owner = ("Workflow", "hyperparameter-search-of-november-with-a-long-name-and-a-number-00017")
    made = b.pod("worker", namespace="vision", node="gpu-1", gpus=4, controller=owner)
    with served(state_of(named([b.node("gpu-1", gpus=8), made]))) as site:
        site.enter()
        yield lambda options: opened_at(site, window, "/explain?namespace=vision&name=worker", **options).page


def test_names_of_253_characters_break_no_view(window):
    long = "n" * 63
    name = ("a-very-long-name." * 15)[:253]
    made = b.pod(name, namespace=long, node="n1", gpus=4, controller=("Job", name))
    with served(state_of(named([b.node("n1", gpus=8, model=name), b.node(name, gpus=8), made]))) as hostile:
        hostile.enter()
        page = opened_at(hostile, window, "/", **WIDE).page
        explain = f"/explain?namespace={long}&name={quote(name)}"
        for options in (WIDE, NARROW):
            page.set_viewport_size(options["viewport"])
            for path in ("/", "/teams", "/queue", "/decisions", "/search?q=very", explain):
                page.goto(hostile.base + path)
                assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"], path


def test_forced_colors_and_print_show_the_same(look):
    page = look("/", **WIDE).page
    light = page.evaluate(TINTS)
    page.emulate_media(forced_colors="active")
    page.wait_for_function(f"() => String(({TINTS})()) !== {json.dumps(','.join(light))}")
    assert NLP in page.evaluate(TINTS), "a team keeps its color"
    page.emulate_media(forced_colors="none", media="print", color_scheme="dark")
    page.wait_for_function("() => getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'")
    assert not page.locator("#map-tools").is_visible()
    assert "255,255,255" in page.evaluate(TINTS), "the ground is that of paper"


class Nina:
    """An authenticator through which a viewer of one team comes."""

    takes_tokens = True

    async def viewer(self, _caller):
        return Viewer("nina", frozenset({"nlp"}), ("not shown: pods of namespaces in which you may not list pods",))


@pytest.mark.parametrize("options", [WIDE, NARROW | DARK], ids=["1440", "390 and dark"])
def test_a_viewer_of_one_team_sees_that_team_alone(window, options):
    with served(state_of(), authenticator=Nina()) as shared:
        page = window(**options).page
        page.goto(f"{shared.base}/")
        page.wait_for_selector("#map[data-drawn-ms] canvas")
        assert page.locator("#teams li").all_inner_texts() == ["Nnlp"]
        assert "Free" not in page.inner_text("#summary"), "what is free is not known to them"
        for path in ("/", "/teams", "/queue", "/decisions", "/search?q=a", "/explain?namespace=nlp&name=later"):
            page.goto(shared.base + path)
            text = page.inner_text("body")
            assert "vision" not in text, path
            assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"]
        assert "1st in the queue of team nlp" in page.inner_text("#now"), "the place that is on their line"
