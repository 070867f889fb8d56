"""Letters tell teams apart where their names begin alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.addons.page.views.gpu_map import team_letters


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["vision", "nlp"], ["V", "N"]),
        (["speech", "serving", "nlp"], ["Sp", "Se", "N"]),
        (["vision", "video"], ["Vs", "Vd"]),
        (["team-1", "team-2"], ["T1", "T2"]),
        (["Ab", "ab"], ["Ab", "A0"]),
        (["a", "ab", ""], ["A0", "Ab", ""]),
    ],
)
def test_the_first_letter_and_one_that_differs(names, want):
    assert [team_letters(names)[name] for name in names] == want


@given(st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=36))
@examples(100)
def test_of_36_teams_no_two_have_the_same(names):
    found = team_letters(names)
    assert list(found) == names
    assert all(found[name].startswith(name[:1].upper()) for name in names)
    assert len(set(found.values())) == len(names)
    assert all(len(each) <= 3 for each in found.values()), "a capital of some letters is two, as of ß"


def test_a_thousand_that_begin_alike_have_at_least_their_first():
    found = team_letters([f"team-{number}" for number in range(1000)])
    assert {each[0] for each in found.values()} == {"T"}
    assert len(set(found.values())) == 37
