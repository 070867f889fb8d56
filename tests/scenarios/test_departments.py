"""Departments: what a team leaves idle goes to its own department first, and comes back the same way round."""

import json

import pytest

from tests.control_plane.workbench import list_pods, make_namespace, make_nodes, wait_for
from tests.scenarios.evictor import ask, evicted, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]


def borrowed(cluster, namespace):
    return sum(each["metadata"]["labels"][TIER] == "preemptible" for each in list_pods(cluster, namespace))


@pytest.mark.promise
def test_a_department_takes_its_share_back_from_the_other_one(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster) as fairgate, evictor(fairgate) as running:
        spaces = {team: make_namespace(cluster, team) for team in ("nlp", "vision", "search")}
        teams = [
            {"name": name, "namespaces": [spaces[name]], "department": department, "gpus": gpus}
            for name, department, gpus in (
                ("nlp", "research", {"guaranteed": 10, "limit": 40}),
                ("vision", "research", {"guaranteed": 10, "limit": 40}),
                ("search", "product", {"guaranteed": 20, "limit": 40}),
            )
        ]
        departments = [{"name": name, "gpus": {"guaranteed": 20, "limit": 40}} for name in ("research", "product")]
        more = {
            "apiVersion": "fairgate.dev/v1alpha1",
            "kind": "Policy",
            "departments": departments,
            "teams": teams,
        }
        (fairgate.policy / "departments.yaml").write_text(json.dumps(more))
        wait_for(cluster, lambda: 'team="search"' in fairgate.get("/metrics"), what="the teams are known")
        near = fill(cluster, spaces["vision"], 15)
        far = fill(cluster, spaces["search"], 25)
        assert (borrowed(cluster, spaces["vision"]), borrowed(cluster, spaces["search"])) == (5, 5)
        names = [f"own-{number}" for number in range(5)]
        for name in names:
            ask(cluster, spaces["nlp"], name)
        wait_bound(cluster, spaces["nlp"], *names)
        assert len(evicted(cluster, spaces["search"], far)) == 5
        assert evicted(cluster, spaces["vision"], near) == []
        assert len(running.said("evicted")) == 5
