"""Colors of teams: each keeps its own, and people who see few colors can distinguish any two."""

import re
from itertools import combinations
from math import dist
from pathlib import Path

import pytest

from webhook.page.http import templates
from webhook.page.views.gpu_map import COLORS, team_colors

SEEN = {  # Machado, Oliveira and Fernandes 2009, severity 1
    "all colors": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def linear(color):
    return [((int(color[at : at + 2], 16) / 255 + 0.055) / 1.055) ** 2.4 for at in (0, 2, 4)]


def lab(rgb):
    r, g, b = (min(1.0, max(0.0, each)) for each in rgb)
    white = (0.95047, 1.0, 1.08883)
    xyz = (
        0.4124 * r + 0.3576 * g + 0.1805 * b,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        0.0193 * r + 0.1192 * g + 0.9505 * b,
    )
    x, y, z = ((each / of) ** (1 / 3) for each, of in zip(xyz, white, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_any_two_colors_differ(mode, kind):
    css = (
        (Path(templates.__file__).parent / "static" / "page.css").read_text().partition("(prefers-color-scheme: dark)")
    )
    found = re.findall(r"--team-[0-7]: #(\w{6});", css[0 if mode == "light" else 2])
    assert len(found) == COLORS
    seen = [lab([sum(a * b for a, b in zip(row, linear(each), strict=True)) for row in SEEN[kind]]) for each in found]
    assert min(dist(one, other) for one, other in combinations(seen, 2)) > 16, "ΔE of 1976; with twelve colors it was 3"


def test_a_team_keeps_its_color_and_few_teams_have_each_their_own():
    names = [f"team-{number}" for number in range(60)]
    more = team_colors(names)
    assert len(set(team_colors(names[:COLORS]).values())) == COLORS
    kept = [more[name] == color for name, color in team_colors(names[1:]).items()]
    assert sum(kept) > 40, "by their order in the list, none would"
    assert sorted(list(more.values()).count(number) for number in range(COLORS)) == [7] * 4 + [8] * 4
    assert team_colors(reversed(names)) == more
