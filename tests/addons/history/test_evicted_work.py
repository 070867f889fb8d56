"""What evictions lost, and what saves after their warning kept, whatever a tenant writes on its pods."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.addons.history.support import T0
from tests.core.support import make
from webhook.addons.history.evicted_work import AHEAD_SECONDS, EvictedWork
from webhook.core.model.amounts import NodeName, TeamName, Uid, WorkloadName
from webhook.core.model.node import KeptPlace
from webhook.core.model.pod import Replica
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys, objects

UID = "u1"
GPUS = 4
START = T0 - 3600
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


class Cluster:
    """A pod of four GPUs that has run for an hour, and the events that a recorder sees of it."""

    def __init__(self, *, start=START):
        self.world = make.world(make.policy(), nodes=[make.node("n0")])
        self.world.set_pod(make.resident(GPUS, uid=UID, node=NodeName("n0"), created=START))
        self.work = EvictedWork(self.world)
        self.annotations = {}
        self.status = {"phase": "Running", "startTime": rfc3339(start), "conditions": []}
        self.now = T0

    def event(self, after=0, *, is_gone=False):
        self.now += after
        metadata = {"name": "p", "namespace": "team-a", "uid": UID, "annotations": self.annotations}
        spec = {"nodeName": "n0", "containers": []}
        raw = msgspec.json.encode({"metadata": metadata, "spec": spec, "status": self.status})
        pod = None if is_gone else msgspec.json.decode(raw, type=objects.Pod)
        return {key.kind.value: seconds / GPUS for key, seconds in self.work.note(pod, UID, self.now)}

    def notice(self, after=0):
        self.annotations[keys.EVICT_AT] = rfc3339(self.now + after + 120)
        return self.event(after)

    def save(self, after, *, text=None):
        self.annotations[keys.CHECKPOINTED] = rfc3339(self.now + after) if text is None else text
        return self.event(after)

    def evict(self, after):
        self.status["conditions"] = [{"type": "Ready", "status": "True"}, DISRUPTED]
        return self.event(after)

    def end(self, after):
        return self.event(after, is_gone=True)


def test_work_is_that_of_the_present_containers():
    cluster = Cluster(start=START)
    cluster.status["containerStatuses"] = [
        {"name": "train", "restartCount": 1, "state": {"running": {"startedAt": rfc3339(T0 - 600)}}}
    ]
    assert cluster.notice() == cluster.evict(120) == {}
    assert cluster.end(30) == {"lost": 750}
    broken = Cluster(start=START)
    broken.status["containerStatuses"] = [{"name": "train", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    assert broken.notice() == broken.evict(120) == broken.end(30) == {}


def test_a_pod_that_saves_nothing_loses_all_since_its_start():
    cluster = Cluster()
    assert cluster.event() == cluster.notice() == cluster.evict(120) == {}
    assert cluster.end(30) == {"lost": 3600 + 150}


def test_a_save_after_the_notice_keeps_what_was_done_since_the_save_before_it():
    cluster = Cluster()
    cluster.save(-600)
    cluster.notice(600)
    cluster.save(20)
    cluster.evict(100)
    assert cluster.end(5) == {"lost": 105, "saved": 620}


REPLICA = {"replica": Replica(WorkloadName("team-a/Deployment/web"), 1), "is_ready": True}


@pytest.mark.parametrize(
    ("pod", "others", "lost"),
    [
        pytest.param(REPLICA, 1, 0, id="a replica of a workload with a minimum"),
        pytest.param(REPLICA, 0, 3720, id="a minimum that counts for nothing"),
        pytest.param({**REPLICA, "is_ready": False}, 1, 3720, id="one that is not ready"),
        pytest.param({**REPLICA, "gang": "g"}, 1, 3720, id="a member of a gang"),
    ],
)
def test_a_replica_that_may_go_loses_no_work(pod, others, lost):
    cluster = Cluster()
    for number in range(others):
        cluster.world.set_pod(make.resident(uid=f"other{number}", node=NodeName("n0"), **REPLICA))
    cluster.world.set_pod(make.resident(GPUS, uid=UID, node=NodeName("n0"), created=START, **pod))
    cluster.notice()
    cluster.world.set_pod(make.resident(GPUS, uid=UID, node=NodeName("n0"), is_terminating=True, **pod))
    cluster.evict(120)
    assert cluster.end(0) == ({"lost": lost} if lost else {})


def test_without_a_notice_the_eviction_is_the_warning_and_a_save_in_the_grace_period_counts():
    cluster = Cluster()
    cluster.evict(0)
    cluster.save(10)
    assert cluster.end(5) == {"lost": 5, "saved": 3610}


def test_a_pod_whose_place_is_kept_is_moved_also_once_its_replacement_has_taken_the_place():
    cluster = Cluster()
    place = KeptPlace("ReplicaSet team-a/train", "team-a/p", TeamName("team-a"), (), replaces=Uid(UID))
    cluster.world.set_node(replace(make.node("n1"), kept=(place,)))
    cluster.annotations[keys.IDLE_SINCE] = rfc3339(T0 - 60)
    cluster.notice()
    cluster.evict(2)
    cluster.world.set_node(make.node("n1"))
    assert cluster.end(30) == {"moved": 3632}


def test_the_move_of_another_pod_is_none_of_its_own():
    cluster = Cluster()
    place = KeptPlace("ReplicaSet team-a/train", "team-a/q", TeamName("team-a"), (), replaces=Uid("u2"))
    cluster.world.set_node(replace(make.node("n1"), kept=(place,)))
    cluster.notice()
    cluster.evict(2)
    assert cluster.end(0) == {"lost": 3602}


def test_a_pod_that_is_evicted_since_it_is_idle_loses_nothing_also_if_its_mark_goes_meanwhile():
    cluster = Cluster()
    cluster.annotations[keys.IDLE_SINCE] = rfc3339(T0 - 60)
    cluster.notice()
    cluster.evict(120)
    del cluster.annotations[keys.IDLE_SINCE]
    cluster.event(5)
    assert cluster.end(5) == {}


def test_an_idle_pod_that_a_share_is_taken_back_from_loses_its_work_and_so_does_one_that_is_drained():
    reclaimed, drained = Cluster(), Cluster()
    for cluster in (reclaimed, drained):
        cluster.annotations[keys.IDLE_SINCE] = rfc3339(T0 - 60)
    reclaimed.annotations[keys.EVICT_FOR] = "team-b"
    reclaimed.notice()
    for cluster in (reclaimed, drained):
        cluster.evict(10)
        assert cluster.end(0) == {"lost": 3610}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_it_counts_once_when_the_pod_has_ended_and_not_again_when_its_object_goes(phase):
    cluster = Cluster()
    cluster.evict(0)
    cluster.status["phase"] = phase
    assert cluster.event(10) == {"lost": 3610}
    assert cluster.event(5) == cluster.end(5) == {}


def test_a_deletion_by_its_owner_is_no_eviction_and_neither_is_a_notice_that_is_withdrawn():
    deleted = Cluster()
    deleted.notice()
    assert deleted.end(10) == {}
    spared = Cluster()
    spared.notice()
    del spared.annotations[keys.EVICT_AT]
    spared.event(10)
    spared.save(0)
    spared.evict(1000)
    assert spared.end(0) == {"lost": 1000}, "what it saved before this eviction's warning is not saved by it"


def test_a_pod_that_never_started_or_holds_no_gpu_loses_nothing():
    cluster = Cluster()
    del cluster.status["startTime"]
    cluster.evict(0)
    assert cluster.end(10) == {}
    gone = Cluster()
    gone.world.remove_pod(UID)
    gone.evict(0)
    assert gone.end(10) == {}


@pytest.mark.parametrize("text", ["2999-01-01T00:00:00Z", "tomorrow", "", "9" * 10_000, "-1", "0001-01-01T00:00:00Z"])
def test_a_checkpoint_of_no_time_saves_nothing(text):
    cluster = Cluster()
    cluster.notice()
    cluster.save(10, text=text)
    cluster.evict(10)
    assert cluster.end(0) == {"lost": 3620}


def test_a_clock_that_is_ahead_saves_until_now_and_not_again_with_each_later_event():
    cluster = Cluster()
    cluster.notice()
    cluster.save(10, text=rfc3339(T0 + 10 + AHEAD_SECONDS))
    cluster.event(30)
    cluster.evict(30)
    assert cluster.end(0) == {"lost": 60, "saved": 3610}


def test_conditions_that_cannot_be_read_are_no_eviction():
    cluster = Cluster()
    cluster.status["conditions"] = [{"type": "DisruptionTarget", "status": 7}]
    cluster.event()
    assert cluster.end(10) == {}


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("notice"), st.integers(0, 300)),
        st.tuples(st.just("evict"), st.integers(0, 300)),
        st.tuples(st.just("save"), st.integers(-7200, 7200)),
        st.tuples(st.just("clock"), st.integers(-600, 600)),
    ),
    max_size=12,
)


@given(moves=MOVES)
def test_whatever_is_written_when_the_sums_are_never_negative_nor_more_than_the_pod_held(moves):
    cluster, latest = Cluster(), T0
    for move, seconds in moves:
        match move:
            case "notice" | "evict":
                getattr(cluster, move)(seconds)
            case "save":
                cluster.save(0, text=rfc3339(cluster.now + seconds))
            case _:
                cluster.event(seconds)  # the recorder's clock was set
        latest = max(latest, cluster.now)
    found = cluster.end(0)
    assert all(seconds >= 0 for seconds in found.values())
    assert sum(found.values()) <= latest - START
