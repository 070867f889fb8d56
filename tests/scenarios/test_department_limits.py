"""A department at its limit: borrowers under it go for a pod inside its share, and the limit holds at every moment."""

import asyncio
import json
import secrets
from contextlib import asynccontextmanager, contextmanager
from threading import Event, Thread

import pytest

from tests.chaos.observer import Observer
from tests.control_plane.api import ApiError
from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_namespace, make_nodes, wait_for
from tests.scenarios.evictor import alive, ask, evicted, evictor, fill, held_nodes, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

LIMIT = 10
GATE, WAITING, RECLAIMING = "fairgate.dev/queue", "fairgate.dev/waiting", "fairgate.dev/reclaiming"
WHOLE = "fairgate.dev/gang-whole"


@contextmanager
def department(fairgate, **shares):
    """Two teams of one department, each guaranteed 4 of its 10 GPUs and refused at limits; yields their namespaces."""
    cluster = fairgate.cluster
    suffix = secrets.token_hex(3)
    spaces = {team: make_namespace(cluster, f"{team}-{suffix}") for team in ("nlp", "vision")}
    gpus = {"guaranteed": 4, "limit": LIMIT, **shares}
    more = {
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Policy",
        "departments": [{"name": f"research-{suffix}", "gpus": {"guaranteed": 8, "limit": LIMIT}}],
        "teams": [
            {"name": space, "namespaces": [space], "department": f"research-{suffix}", "gpus": gpus}
            for space in spaces.values()
        ],
    }
    (fairgate.policy / "department.yaml").write_text(json.dumps(more))
    known = f'team="{spaces["vision"]}"'
    for number in range(len(fairgate.replicas)):
        wait_for(cluster, lambda n=number: known in fairgate.get("/metrics", replica=n), what="the teams are known")
    yield spaces


def is_gated(found):
    return any(gate["name"] == GATE for gate in found["spec"].get("schedulingGates", ()))


def waits(cluster, namespace, name):
    return is_gated(get_pod(cluster, namespace, name))


@asynccontextmanager
async def observed(cluster, spaces):
    """Watch what the teams hold together until the end of the block; yields the observer."""
    limits = dict.fromkeys(spaces.values(), LIMIT) | {"research": LIMIT}
    observer = Observer(cluster, limits, above={space: ["research"] for space in spaces.values()})
    watching = asyncio.create_task(observer.run())
    try:
        await asyncio.to_thread(wait_for, cluster, lambda: observer.peaks["research"] == LIMIT, what="it sees the pods")
        yield observer
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@contextmanager
def returning(cluster, namespace):
    """Create borrowing pods as fast as a controller does, until the end of the block; yields those that were let in."""
    stopping, let_in = Event(), []

    def create():
        number = 0
        while not stopping.is_set():
            try:
                create_pod(cluster, namespace, pod(f"again-{number}", gpus=1, cpu="1", memory="4Gi"))
            except ApiError:
                stopping.wait(0.02)
            else:
                let_in.append(f"again-{number}")
            number += 1

    thread = Thread(target=create)
    thread.start()
    try:
        yield let_in
    finally:
        stopping.set()
        thread.join()


def test_with_the_limit_and_the_node_full_one_eviction_serves_a_pod_inside_its_share(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate, evictor(fairgate) as running, department(fairgate) as spaces:
        near = fill(cluster, spaces["vision"], LIMIT)
        with returning(cluster, spaces["vision"]) as let_in:
            ask(cluster, spaces["nlp"], "own")
            text = get_pod(cluster, spaces["nlp"], "own")["metadata"]["annotations"][WAITING]
            assert "holds 10 of 10, 6 of them borrowed" in text
            assert f"it is inside team {spaces['nlp']}'s guaranteed share, so 1 GPU can be reclaimed" in text
            wait_bound(cluster, spaces["nlp"], "own")
        assert let_in == []
        (victim,) = evicted(cluster, spaces["vision"], near)
        assert len(running.said("evicted")) == 1
        assert [each["victims"] for each in running.said("limit plan")] == [[f"{spaces['vision']}/{victim}"]]
        found = get_pod(cluster, spaces["nlp"], "own")
        assert found["metadata"]["labels"][TIER] == "guaranteed"
        assert held_nodes(cluster) == []


async def test_a_team_gets_its_whole_share_back_and_no_more(cluster):
    """There are free nodes: only the limit is in the way. The fifth pod would borrow, so it is refused.

    Every replica sees for which pod the room is before it sees the room.
    """
    make_nodes(cluster, 3)
    names = [f"own-{number}" for number in range(4)]
    with serve_fairgate(cluster, replicas=3) as fairgate, evictor(fairgate) as running, department(fairgate) as spaces:
        near = fill(cluster, spaces["vision"], LIMIT)

        def take_back():
            for name in names:
                ask(cluster, spaces["nlp"], name)
            wait_bound(cluster, spaces["nlp"], *names)

        async with observed(cluster, spaces) as observer:
            with returning(cluster, spaces["vision"]) as let_in:
                await asyncio.to_thread(take_back)
        assert (let_in, observer.breaches, observer.peaks["research"]) == ([], [], LIMIT)
        assert len(evicted(cluster, spaces["vision"], near)) == 4
        assert len(running.said("evicted")) == 4
        with pytest.raises(ApiError, match=r"department research-.*: requested 1, limit 10, used 10"):
            ask(cluster, spaces["nlp"], "beyond")
        assert len(alive(cluster, spaces["vision"])) == 6


async def test_a_gang_gets_room_for_all_of_its_pods_at_once_and_starts_whole(cluster):
    """Only the object of the Job says how many pods it has: the webhook reads it, and the evictor goes by that."""
    make_nodes(cluster, 2)
    train = job("train", pods=3, gpus=1, annotations={"fairgate.dev/gang": "true"}, cpu="1", memory="4Gi")
    with serve_fairgate(cluster, replicas=3) as fairgate, evictor(fairgate) as running, department(fairgate) as spaces:
        near = fill(cluster, spaces["vision"], LIMIT)

        def members():
            return list_pods(cluster, spaces["nlp"])

        def started():
            return [each for each in members() if each["spec"].get("nodeName")]

        def take_back():
            cluster.api.create(f"/apis/batch/v1/namespaces/{spaces['nlp']}/jobs", train)
            wait_for(cluster, lambda: len(started()) == 3, what="the gang runs")

        async with observed(cluster, spaces) as observer:
            with returning(cluster, spaces["vision"]) as let_in:
                await asyncio.to_thread(take_back)
        assert (let_in, observer.breaches, observer.peaks["research"]) == ([], [], LIMIT)
        assert len(evicted(cluster, spaces["vision"], near)) == len(running.said("evicted")) == 3
        assert {each["metadata"]["labels"][TIER] for each in members()} == {"guaranteed"}
        assert not any(WHOLE in each["metadata"]["annotations"] for each in members())


def test_while_a_pod_waits_its_own_room_is_marked_and_a_deleted_one_leaves_others_alone(cluster):
    make_nodes(cluster, 1)
    policy = "reclaim: {notice: 1h}\n"
    with serve_fairgate(cluster, policy=policy) as fairgate, evictor(fairgate), department(fairgate) as spaces:
        near = fill(cluster, spaces["vision"], LIMIT)
        ask(cluster, spaces["nlp"], "own")

        def is_marked():
            return RECLAIMING in get_pod(cluster, spaces["nlp"], "own")["metadata"]["annotations"]

        def noticed():
            pods = (get_pod(cluster, spaces["vision"], name) for name in near)
            return [each for each in pods if "fairgate.dev/evict-at" in each["metadata"].get("annotations", {})]

        wait_for(cluster, is_marked, what="the pod is marked")
        wait_for(cluster, lambda: len(noticed()) == 1, what="one victim has its notice")
        assert waits(cluster, spaces["nlp"], "own")
        cluster.kubectl("delete", "pod", "own", "-n", spaces["nlp"], "--wait=false")
        wait_for(cluster, lambda: not noticed(), what="the notice is withdrawn")
        assert evicted(cluster, spaces["vision"], near) == []
