"""Scenes of plans for limits: a tree of teams over a small cluster, wholly or partly borrowed."""

from hypothesis import strategies as st

from tests.core.support.make import gpus
from tests.core.support.scenes import NOW, scene, victim, waiting
from webhook.core.model.amounts import TeamName
from webhook.core.reclaim.limit_plan import Entitled
from webhook.core.reclaim.limit_victims import LimitLevel

TEAMS = ("team-a", "team-b", "team-c")
LEVELS = {
    "team team-b": frozenset({"team-b"}),
    "department left": frozenset({"team-a", "team-b"}),
    "department top": frozenset(TEAMS),
}
"""The limits above team-b, the lowest first; team-d is outside."""
ALL = -1


def level(name="department left", *, free=0, coming=0):
    teams = frozenset(map(TeamName, LEVELS[name]))
    return LimitLevel(name, teams, gpus(free), gpus(coming))


def asked(name="b", count=1, *, slots=ALL, levels=("department left",), **more):
    """A pod in line of team-b, alone."""
    return (Entitled(waiting(name, count, **more), slots, levels),)


def gone(found):
    return [each.name for move in found.moves for each in move.victims]


@st.composite
def limit_scenes(draw, *, nodes=3, size=4):
    """A cluster with borrowers and others, levels that are more or less full, and pods in line."""
    victims, others = [], []
    for place in range(nodes):
        room = size
        while room > 0 and draw(st.integers(0, 4)):
            count = min(room, draw(st.integers(1, 3)))
            room -= count
            if draw(st.integers(0, 3)):
                number = len(victims)
                team = draw(st.sampled_from([*TEAMS, "team-d"]))
                gang = draw(st.sampled_from([None, None, None, "g"]))
                victims.append(
                    victim(
                        f"v{number}",
                        count,
                        on=f"n{place}",
                        team=team,
                        started=draw(st.integers(0, 3)),
                        gang=None if gang is None else f"{team}/{gang}",
                        until=draw(st.sampled_from([0, 0, 0, NOW + 1])),
                    )
                )
            else:
                others.append(victim(f"o{place}-{room}", count, on=f"n{place}", team="team-b"))
    names = draw(st.sets(st.sampled_from(sorted(LEVELS)), min_size=1))
    levels = [level(name, free=draw(st.integers(-2, 2)), coming=draw(st.integers(0, 1))) for name in sorted(names)]
    order = [name for name in LEVELS if name in names]
    groups = [
        asked(f"b{number}", draw(st.integers(1, 4)), levels=tuple(order), since=number)
        for number in range(draw(st.integers(1, 3)))
    ]
    return groups, levels, scene(victims, nodes=nodes, size=size, others=others)
