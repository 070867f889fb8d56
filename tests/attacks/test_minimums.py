"""Attacks of a namespace admin who states minimums to keep borrowed GPUs."""

import pytest

from tests.attacks.attacker import make_attacker
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.evictor import ask, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_minimums import autoscaler, ready, service

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}
MINIMUM = "fairgate.dev/minimum"


def test_no_minimum_keeps_borrowed_gpus_from_their_owner_nor_changes_on_a_pod(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate):
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker = make_attacker(cluster, mine)
        single = [service(f"one{number}", replicas=1, minimum=1) for number in range(4)]
        hungry = [service("huge", replicas=2, minimum=10_000), service("negative", replicas=1, minimum=-1)]
        scaled = [service("scaled", replicas=2), autoscaler("scaled", least=2, most=9)]
        for each in (*single, *hungry, *scaled):
            done = attacker.create(each)
            assert done.returncode == 0, done.stderr
        full = {**{f"one{number}": 1 for number in range(4)}, "huge": 2, "negative": 1, "scaled": 2}
        wait_for(cluster, lambda: full.items() <= ready(cluster, mine).items(), what="all run")
        held = sum(ready(cluster, mine).values())
        fill(cluster, mine, 10 - held, prefix="rest", labels=BORROW)
        pod = next(each for each in list_pods(cluster, mine) if each["metadata"]["labels"].get("app") == "huge")
        name = pod["metadata"]["name"]
        for value in ("1", None):
            changed = attacker.kubectl(
                "annotate", "pod", name, f"{MINIMUM}={value}" if value else f"{MINIMUM}-", "--overwrite"
            )
            assert "(ProtectedKeyChanged)" in changed.stderr
        ask(cluster, theirs, "b", gpus=10)
        wait_bound(cluster, theirs, "b")
        assert ready(cluster, mine) == {}
