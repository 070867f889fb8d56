"""A namespace admin tries to hold room by gangs that never come, to join gangs of others, and to busy the leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod, pod_spec
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import evicted, evictor, fill
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate
from tests.scenarios.test_department_limits import GATE, LIMIT, WHOLE, department, returning

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
WAITING = "fairgate.dev/waiting"
POLICY = "defaults: {onLimit: queue, onNoRoom: queue}\n"


@pytest.fixture
def fairgate(cluster: ControlPlane) -> Iterator[FairgateServer]:
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=POLICY, limit_a=40) as running:
        yield running


@pytest.fixture
def attacker(fairgate: FairgateServer) -> Attacker:
    return make_attacker(fairgate.cluster, fairgate.team_a)


def ranks(name: str, *, replicas: int, gpus: int = 10) -> dict[str, Any]:
    """A StatefulSet that makes its second pod after a day: room for the others is kept, and they do not come."""
    spec = pod_spec(gpus=gpus, **SIZE)
    template = {"metadata": {"labels": {"app": name}, "annotations": {"fairgate.dev/gang": "true"}}, "spec": spec}
    made = {
        "replicas": replicas,
        "minReadySeconds": 86_400,
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": made}


def member(name: str, gang: str, *, size: object = 2, gpus: int = 1, **labels: str) -> dict[str, Any]:
    return pod(
        name,
        gpus=gpus,
        labels=labels or {"kueue.x-k8s.io/pod-group-name": gang},
        annotations={"kueue.x-k8s.io/pod-group-total-count": str(size)},
        **SIZE,
    )


def texts(cluster: ControlPlane, namespace: str) -> dict[str, str]:
    found = list_pods(cluster, namespace)
    return {each["metadata"]["name"]: each["metadata"]["annotations"].get(WAITING, "") for each in found}


def started(cluster: ControlPlane, namespace: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in list_pods(cluster, namespace) if each["spec"].get("nodeName"))


def test_room_for_pods_that_never_come_is_given_back_to_a_team_inside_its_share(
    fairgate: FairgateServer, attacker: Attacker
) -> None:
    cluster = fairgate.cluster
    assert attacker.create(ranks("hoard", replicas=4)).returncode == 0
    wait_for(cluster, lambda: fairgate.charged("a") == 40, what="room for four is charged")
    create_pod(cluster, fairgate.team_b, pod("owed", gpus=10, **SIZE))
    wait_bound(cluster, fairgate.team_b, "owed")  # within seconds: the gang has five minutes
    assert started(cluster, fairgate.team_a) == ["hoard-0"], "no pod had to be evicted"
    wait_for(cluster, lambda: fairgate.charged("a") == 20, what="what is inside the share is still kept")


def test_a_gang_that_is_deleted_lets_go_of_its_room_at_once_however_often_it_is_made(
    fairgate: FairgateServer, attacker: Attacker
) -> None:
    cluster = fairgate.cluster
    for number in range(3):
        assert attacker.create(ranks(f"hoard-{number}", replicas=3)).returncode == 0
        wait_for(cluster, lambda: fairgate.charged("a") == 30, what="room for three is charged")
        attacker.kubectl("delete", "statefulset", f"hoard-{number}", "--cascade=foreground", "--wait=true")
        wait_for(cluster, lambda: fairgate.charged("a") == 0, what="nothing is charged")
    wait_for(cluster, lambda: not fairgate.ledger("a")["ledger"]["inFlight"], what="the ledger is empty")


def test_forged_sizes_hold_nothing(fairgate: FairgateServer, attacker: Attacker) -> None:
    cluster = fairgate.cluster
    attacker.refused(member("huge", "huge", size=999_999), code="TooLarge")
    assert attacker.create(ranks("endless", replicas=900, gpus=1)).returncode == 0
    assert attacker.create(member("first", "grows", size=2)).returncode == 0
    assert attacker.create(member("second", "grows", size=400)).returncode == 0
    wait_for(
        cluster,
        lambda: "the limit of team a is 40" in texts(cluster, fairgate.team_a).get("endless-0", ""),
        what="it needs more than its team may have",
    )
    wait_for(
        cluster,
        lambda: texts(cluster, fairgate.team_a)["second"].startswith("waits: 2 of 400 members of gang grows have come"),
        what="the larger size counts",
    )
    assert started(cluster, fairgate.team_a) == []
    assert fairgate.charged("a") == 0
    assert attacker.create(member("alone", "vast", size=10**9)).returncode == 0
    wait_bound(cluster, fairgate.team_a, "alone")  # a size of so many digits is none


def test_a_gang_of_which_another_gate_holds_a_pod_holds_nothing(fairgate: FairgateServer, attacker: Attacker) -> None:
    cluster = fairgate.cluster
    for number in range(2):
        assert attacker.create(member(f"m-{number}", "slow", size=3, gpus=10)).returncode == 0
    held = member("held", "slow", size=3, gpus=10)
    held["spec"]["schedulingGates"] = [{"name": "example.com/mine"}]
    assert attacker.create(held).returncode == 0
    said = texts(cluster, fairgate.team_a)
    assert said["m-1"].startswith("waits: 2 of 3 members of gang slow have come")
    assert "scheduling gate example.com/mine of another controller holds it" in said["held"]
    for namespace in (fairgate.team_a, fairgate.team_b):
        create_pod(cluster, namespace, pod("honest", gpus=10, **SIZE))
        wait_bound(cluster, namespace, "honest")
    assert started(cluster, fairgate.team_a) == ["honest"]
    assert fairgate.charged("a") == 10
    gates = json.dumps({"spec": {"schedulingGates": [{"name": "fairgate.dev/queue"}]}})
    assert attacker.kubectl("patch", "pod", "held", "--type=merge", "-p", gates).returncode == 0
    wait_for(
        cluster,
        lambda: "gang slow starts whole, with 3 pods" in texts(cluster, fairgate.team_a)["held"],
        what="it is whole, and two nodes are not enough",
    )
    cluster.kubectl("delete", "pod", "honest", "-n", fairgate.team_b, "--wait=true")
    wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 4, what="it starts whole")


def test_a_pod_that_claims_to_be_in_a_gang_of_another_namespace_is_not(
    fairgate: FairgateServer, attacker: Attacker
) -> None:
    cluster = fairgate.cluster
    create_pod(cluster, fairgate.team_b, member("honest", "shared"))
    for number in range(2):
        assert attacker.create(member(f"m-{number}", "shared")).returncode == 0
    wait_for(cluster, lambda: started(cluster, fairgate.team_a) == ["m-0", "m-1"], what="the attacker's own gang")
    assert started(cluster, fairgate.team_b) == []
    wait_for(
        cluster,
        lambda: texts(cluster, fairgate.team_b)["honest"].startswith("waits: 1 of 2 members of gang shared"),
        what="the other gang waits for its own",
    )
    assert (fairgate.charged("a"), fairgate.charged("b")) == (2, 0)


def test_names_of_objects_reach_nothing_outside_of_the_namespace(fairgate: FairgateServer, attacker: Attacker) -> None:
    cluster = fairgate.cluster
    path = f"../../{fairgate.team_b}/pods/x"
    made = pod("p", gpus=1, annotations={"scheduling.k8s.io/group-name": path}, **SIZE)
    assert attacker.create(made).returncode == 0
    wait_bound(cluster, fairgate.team_a, "p")
    found = json.loads(attacker.kubectl("get", "events", "-o", "json").stdout)["items"]
    said = [each["message"] for each in found if each["reason"] == "GangSizeUnknown"]
    assert all("the object that makes its pods is not known" in message for message in said)
    assert len(said) == 1


def test_many_gangs_do_not_keep_the_gang_of_another_team_waiting(fairgate: FairgateServer, attacker: Attacker) -> None:
    cluster = fairgate.cluster
    for number in range(60):
        attacker.create_pod(member(f"m-{number}", "", **{"ray.io/cluster": f"c-{number}"}))
    own = ranks("own", replicas=1, gpus=1)
    cluster.kubectl.apply([own], "-n", fairgate.team_b)
    wait_for(cluster, lambda: started(cluster, fairgate.team_b) == ["own-0"], what="its size is read")


def test_a_gang_that_forges_that_it_is_whole_has_one_pod_evicted_and_loses_the_room(cluster: ControlPlane) -> None:
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate, evictor(fairgate) as running, department(fairgate) as spaces:
        attacker = make_attacker(cluster, spaces["nlp"])
        near = fill(cluster, spaces["vision"], LIMIT)
        forged = member("forged", "half", size=2)
        forged["metadata"]["annotations"] |= {WHOLE: "1", "fairgate.dev/gang": "true"}
        assert attacker.create(forged).returncode == 0
        assert attacker.kubectl("annotate", "pod", "forged", f"{WHOLE}=1", "--overwrite").returncode == 0
        wait_for(cluster, lambda: evicted(cluster, spaces["vision"], near), what="a borrower is evicted for it")
        with returning(cluster, spaces["vision"]) as let_in:
            wait_for(cluster, lambda: let_in, what="the room is given back", timeout=90)
        assert len(running.said("evicted")) == 1
        (found,) = list_pods(cluster, spaces["nlp"])
        assert found["spec"]["schedulingGates"] == [{"name": GATE}], "half a gang never starts"
