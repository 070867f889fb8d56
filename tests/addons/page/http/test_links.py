"""Addresses keep what was chosen, and nothing else; one that comes from outside leads to a view of this page."""

import pytest

from webhook.addons.page.http.templates import LONGEST_LINK, Links, own_address


def test_this_view_keeps_its_choices_and_another_one_keeps_the_team():
    links = Links("/decisions", {"q": "a b&c", "kind": "admitted", "token": "secret", "team": "nlp"}, team="nlp")
    assert links.here(page=2) == "/decisions?team=nlp&q=a+b%26c&kind=admitted&page=2"
    assert links.here(team="", q="") == "/decisions?kind=admitted"
    assert links.to("/queue") == "/queue?team=nlp"
    assert links.to("/explain", namespace="n", name="<x>") == "/explain?team=nlp&namespace=n&name=%3Cx%3E"
    assert (links.chosen("kind"), links.chosen("token")) == ("admitted", "")


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("/?group=model&node=gpu-1", "/?node=gpu-1&group=model"),
        ("/explain?namespace=vision&name=train-0", "/explain?namespace=vision&name=train-0"),
        ("/queue", "/queue"),
        ("/sign-in?address=/line", "/"),
        ("/events", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/line", "/"),
        ("javascript:alert(1)", "/"),
        ("line", "/"),
        ("//[", "/"),
        ("/queue?" + "&".join(f"q{n}=1" for n in range(1000)), "/"),
        ("/decisions?q=%22%3E%3Cscript%3E'; url=//evil", "/decisions?q=%22%3E%3Cscript%3E%27%3B+url%3D%2F%2Fevil"),
        ("/search?q=" + "x" * 1000, "/search?q=" + "x" * LONGEST_LINK),
    ],
)
def test_an_address_from_outside_leads_to_a_view_of_this_page(address, want):
    assert own_address(address) == want
