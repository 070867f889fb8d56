"""A page in a real Chromium whose server restarts, whose session ends, or whose source is out of date: it says so."""

from contextlib import ExitStack

import pytest

from tests import builders as b
from tests.addons.page.support.pages import named, served, state_of
from tests.addons.page.support.windows import LIVE, opened_at
from webhook.addons.page.live import hub
from webhook.addons.page.root import PageSettings
from webhook.addons.page.views.teams import EVERYTHING

BANNER = "() => { const banner = document.getElementById('banner'); return banner.hidden ? '' : banner.textContent; }"


class Proxied:
    """An authenticator that lets everyone in, as behind a proxy that adds a token."""

    takes_tokens = True
    is_known = True

    async def viewer(self, _caller):
        return EVERYTHING if self.is_known else None


@pytest.fixture
def restarts(window):
    """Open a page, and end its server; `serve` starts another one on the same port."""
    with ExitStack() as stack:
        first = ExitStack()
        site = first.enter_context(served(state_of(), authenticator=Proxied()))
        opened = window()
        opened.page.goto(site.base)
        opened.page.wait_for_selector("#map[data-drawn-ms]")
        opened.page.wait_for_function(LIVE)

        def restart(state, authenticator):
            first.close()
            opened.page.wait_for_function(f"() => ({BANNER})().startsWith('Not connected since')")
            settings = PageSettings(port=site.port)
            return stack.enter_context(served(state, authenticator=authenticator, settings=settings))

        yield opened, restart
        opened.page.goto("about:blank")
        opened.errors.clear()  # of connections that ended


def test_after_a_restart_a_page_connects_again_and_shows_what_is_now(restarts):
    opened, restart = restarts
    restart(state_of(named([b.node("newcomer", gpus=4)])), Proxied())
    opened.page.wait_for_function(LIVE, timeout=60_000)
    opened.page.wait_for_function("() => document.querySelector('#map h2').textContent.includes('1 node, 4 GPUs')")
    opened.page.wait_for_function("() => document.querySelector('#nodes').textContent.includes('newcomer')")
    assert opened.page.evaluate(BANNER) == ""


def test_after_a_restart_that_ended_the_session_a_page_says_so_and_leads_to_the_sign_in(restarts):
    opened, restart = restarts
    stranger = Proxied()
    stranger.is_known = False
    page = opened.page
    page.select_option("#map-group", "model")
    restart(state_of(), stranger)
    page.wait_for_function(f"() => ({BANNER})().startsWith('Your session ended.')", timeout=60_000)
    page.click("#banner a")
    page.wait_for_url("**/sign-in?**")
    assert page.input_value("input[name=address]") == "/?group=model"


def test_a_page_of_one_user_asks_for_the_new_url(window):
    first = ExitStack()
    site = first.enter_context(served(state_of()))
    site.enter()
    opened = opened_at(site, window, "/")
    opened.page.wait_for_function(LIVE)
    first.close()
    with served(state_of(), settings=PageSettings(port=site.port)) as second:
        opened.page.wait_for_function(f"() => ({BANNER})().includes('open the URL that it printed')", timeout=60_000)
        other = opened.context.new_page()
        other.goto(second.url)
        other.wait_for_url(f"{second.base}/")
        opened.page.wait_for_function(LIVE, timeout=60_000)  # its cookie is of the same browser
    opened.page.goto("about:blank")
    opened.errors.clear()


def test_a_state_that_is_out_of_date_is_a_banner_while_it_lasts(window, monkeypatch):
    monkeypatch.setattr(hub, "STALE_SECONDS", 0.05)
    state = state_of()
    with served(state) as site:
        site.enter()
        page = opened_at(site, window, "/teams").page
        page.wait_for_function(LIVE)
        state.why_stale = lambda: "pods: no event for 130 s"
        page.wait_for_function(f"() => ({BANNER})() === 'Out of date: pods: no event for 130 s'")
        assert (
            page.locator("#banner").evaluate("each => getComputedStyle(each).backgroundColor") == "rgb(255, 244, 217)"
        )
        state.why_stale = lambda: None
        page.wait_for_function(LIVE)
        assert page.evaluate(BANNER) == ""


def test_a_file_shows_its_age_and_is_not_called_live(window):
    state = state_of()
    state.saved = 1_795_342_000
    with served(state) as site:
        site.enter()
        page = opened_at(site, window, "/").page
        page.wait_for_function("() => document.getElementById('connection').textContent === 'follows the file'")
        saved = page.locator("#source time")
        assert saved.inner_text().endswith(" ago")
        assert saved.get_attribute("title") == "2026-11-22T10:06:40Z"
