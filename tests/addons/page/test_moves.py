"""The view of moves that would make room: for who sees all, by the command's own plan."""

import html
import re

from tests.addons.moves.command.test_defragment import POLICY, pending, pod, scattered
from tests.addons.page.support.pages import named, policy_of, served, state_of
from tests.addons.page.test_viewers import Here, OneViewer
from webhook.addons.page.views.teams import Viewer
from webhook.files import TooLongError


def shown(found, viewer=None, snapshots=None):
    """The text of the view."""
    state = state_of(named(found), policy=policy_of(POLICY))
    authenticator = None if viewer is None else OneViewer(viewer)
    with served(state, authenticator=authenticator, snapshots=snapshots or Here()) as site:
        if viewer is None:
            site.enter()
        status, body = site.get("/moves")
        assert status == 200, body
        main = body.partition("<main")[2].partition("</main>")[0]
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def test_it_shows_each_move_and_what_it_costs():
    text = shown([*scattered(), pending("train", 4)])
    assert "vision/ train 1 move would make room on gpu-2 ." in text
    assert "0.5" in text
    assert "worth it" in text
    assert "nlp/ b" in text
    assert "gpu-2 gpu-1" in text


def test_it_says_for_which_pods_there_are_none_and_why_others_stay():
    text = shown([*scattered(), pending("huge", 8), pod("bare", node="gpu-3", owner=None)])
    assert "There are no moves that would make room" in text
    assert "vision/ huge : no open node that it may use could hold it" in text
    assert "1: no controller would create it again" in text


def test_who_does_not_see_all_pods_sees_no_moves():
    viewer = Viewer("nina", frozenset({"vision"}), nodes=frozenset())
    text = shown([*scattered(), pending("train", 4)], viewer)
    assert "Moves are planned from all nodes and pods." in text
    assert "nlp" not in text


class TooLong:
    """Work on snapshots that never ends in time."""

    async def run(self, _work):
        raise TooLongError("too long")


def test_a_plan_that_takes_too_long_is_left_to_the_command():
    assert "ask `fairgate defragment --dry-run`" in shown(scattered(), snapshots=TooLong())


def test_the_line_links_to_it():
    state = state_of(named([*scattered(), pending("train", 4)]), policy=policy_of(POLICY))
    with served(state, snapshots=Here()) as site:
        site.enter()
        assert 'href="/moves"' in site.get("/queue")[1]
