"""How long people wait for the page of a large cluster, in a real Chromium.

The first picture of the map, also over 10 Mbit/s; the paint of one changed node, and the time from its change to its
picture; a line of waiting pods until its table is there. Goals: a first picture within
2 s, a paint within 100 ms. Run it from the repository's root: `python benchmarks/page.py`; $CHROMIUM names the browser.

The figures of docs/benchmarks.md are those of
    python benchmarks/page.py
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator

from playwright.sync_api import Page, sync_playwright

from tests.addons.page.support.chromium import ARGUMENTS, chromium
from tests.addons.page.support.large_cluster import NODES, add_line, add_pod, filled
from tests.addons.page.support.pages import Served, served, state_of
from webhook.addons.page.live.readable import SharedLine
from webhook.files import Snapshots

CHANGES = 20
SLOW_NETWORK = {"offline": False, "latency": 40, "downloadThroughput": 10_000_000 // 8, "uploadThroughput": 1_250_000}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--line", type=int, default=2_000, help="queued pods")
    options = parser.parse_args(arguments)
    table = asyncio.run(measure_line(options.nodes, options.line))
    print(f"a line of {options.line} pods: table after {table:.1f} s")
    executable = chromium()
    if executable is None:
        raise SystemExit("there is no Chromium: .ci/browser.sh installs it, or $CHROMIUM names one")
    with served(filled(state_of([]), options.nodes)) as site, sync_playwright() as playwright:
        site.enter()
        browser = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        context = browser.new_context(viewport={"width": 1200, "height": 900})
        name, _, value = site.cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": site.base}])
        page = context.new_page()
        print(f"{options.nodes} nodes: first picture after {first_picture(page, site.base)} ms")
        page.wait_for_function("() => document.getElementById('connection').textContent === 'live'")
        median = 1000 * statistics.median(changes(site, page, options.nodes))
        paint = page.get_attribute("#map", "data-update-ms")
        print(f"a changed node: paint {paint} ms at most, from change to picture {median:.0f} ms")
        network = context.new_cdp_session(page)
        network.send("Network.enable")
        network.send("Network.emulateNetworkConditions", SLOW_NETWORK)
        print(f"over 10 Mbit/s: first picture after {first_picture(page, site.base)} ms")
        browser.close()


def first_picture(page: Page, base: str) -> str:
    page.goto(base + "/")
    page.wait_for_selector("#map[data-drawn-ms] .tile")
    return str(page.get_attribute("#map", "data-drawn-ms"))


def changes(site: Served, page: Page, nodes: int) -> Iterator[float]:
    """Yield the seconds from the change of a node to its picture."""
    for number in range(CHANGES):
        node, began = f"gpu-{number * 7 % nodes}", time.perf_counter()
        site.call(lambda node=node: add_pod(site.state, node))
        page.wait_for_function(f"() => Number(document.getElementById('map').dataset.updates ?? 0) > {number}")
        yield time.perf_counter() - began


async def measure_line(nodes: int, pods: int) -> float:
    """Return the seconds until the table of a line is there."""
    state = filled(state_of([]), nodes)
    add_line(state, pods)
    line = SharedLine(state, Snapshots())
    began = time.perf_counter()
    await line.line()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
