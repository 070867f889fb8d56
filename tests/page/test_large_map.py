"""5,000 nodes with 8 GPUs each in a real Chromium; benchmarks/page.py measures how long their pictures take."""

from http.client import HTTPConnection

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.page.conftest import Window
from tests.page.support.large_cluster import add_pod, filled
from tests.page.support.pages import served, state_of
from tests.page.test_browser import RULES
from webhook.core.model.amounts import Uid

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site():
    with served(filled(state_of([]))) as found:
        found.enter()
        yield found


@pytest.fixture
def page(site, browser):
    opened = Window(browser)
    name, _, value = site.cookie.partition("=")
    opened.context.add_cookies([{"name": name, "value": value, "url": site.base}])
    opened.page.goto(site.base + "/")
    opened.page.wait_for_selector("#map[data-drawn-ms] .tile")
    opened.page.wait_for_function("() => document.getElementById('connection').textContent === 'live'")
    yield opened.page
    opened.close()
    assert opened.errors == []


def test_each_change_of_a_node_is_painted_by_itself(site, page):
    for number in range(20):
        site.call(lambda number=number: add_pod(site.state, f"gpu-{number * 7}"))
        page.wait_for_function(f"() => Number(document.getElementById('map').dataset.updates ?? 0) > {number}")
    assert int(page.get_attribute("#map", "data-updates")) == 20


def test_the_map_takes_a_tenth_of_its_bytes_on_the_wire(site, record_property):
    sizes = {}
    for accepted in ("identity", "gzip"):
        connection = HTTPConnection("127.0.0.1", site.port, timeout=30)
        connection.request("GET", "/map.json", headers={"Cookie": site.cookie, "Accept-Encoding": accepted})
        sizes[accepted] = len(connection.getresponse().read())
        connection.close()
    record_property("bytes", sizes)
    assert sizes["gzip"] * 10 < sizes["identity"]


def test_half_of_all_nodes_may_change_at_once(site, page):
    def change():
        for uid in [found.uid for found in site.state.world.pods()][::2]:
            site.state.world.remove_pod(Uid(uid))
        site.state.touch_all()

    before, drawn = page.inner_text("#map"), int(page.get_attribute("#map", "data-updates") or 0)
    site.call(change)
    page.wait_for_function("before => document.querySelector('#map').innerText !== before", arg=before)
    two_more = "drawn => Number(document.getElementById('map').dataset.updates) > drawn + 1"
    page.wait_for_function(two_more, arg=drawn)  # each message is painted on its own


def test_many_nodes_are_tiles_that_open(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("() => document.getElementById('map').clientWidth < 400")
    assert page.locator("#map .tile").count() == 79
    assert [each["id"] for each in Axe().run(page, options=RULES).response["violations"]] == []
    assert page.locator("#map canvas:visible").count() == 0
    assert page.evaluate("document.getElementById('map').clientHeight") < 5_000
    assert page.inner_text("#map .tile >> nth=0").startswith("gpu-0 to gpu-63")
    page.click("#map .tile summary >> nth=1")
    page.locator("#map canvas:visible").focus()
    assert page.inner_text("#map-says").partition(",")[0] in {f"gpu-{number}" for number in range(64, 128)}
    page.fill("#map-node", "gpu-4999")
    page.wait_for_function("() => document.querySelectorAll('#map .tile:not([hidden])').length === 1")
    assert page.locator("#map .tile:visible canvas").is_visible(), "what is looked for is opened"
