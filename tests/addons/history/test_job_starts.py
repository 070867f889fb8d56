"""When jobs start: single pods at once, gangs with their last pod."""

from webhook.addons.history.meter import JobPod, JobStarts
from webhook.core.model.amounts import ONE_GPU, GangId


def pod(gpus=1, *, created=100, gang=None, on_node=False):
    return JobPod(gpus * ONE_GPU, created, None if gang is None else GangId(gang), on_node)


def test_a_pod_starts_once():
    starts = JobStarts()
    assert starts.set("a", pod(2), now=100) is None
    assert starts.set("a", pod(2, on_node=True), now=130) == ("2", 30)
    assert starts.set("a", pod(2, on_node=True), now=140) is None
    assert starts.set("a", None, now=150) is None


def test_a_gang_starts_with_its_last_pod_and_has_waited_since_its_first():
    starts = JobStarts()
    for number in range(3):
        assert starts.set(f"g{number}", pod(4, created=100 + number, gang="g"), now=103) is None
    assert starts.set("g0", pod(4, created=100, gang="g", on_node=True), now=110) is None
    assert starts.set("g1", pod(4, created=101, gang="g", on_node=True), now=111) is None
    assert starts.set("g2", pod(4, created=102, gang="g", on_node=True), now=160) == ("9-64", 60)


def test_a_pod_that_comes_again_is_a_job_of_its_own_size():
    starts = JobStarts()
    starts.set("g0", pod(4, gang="g", on_node=True), now=100)
    starts.set("g1", pod(4, created=200, gang="g"), now=200)
    assert starts.set("g1", pod(4, created=200, gang="g", on_node=True), now=205) == ("3-4", 5)


def test_a_gang_whose_waiting_pod_is_deleted_has_started():
    starts = JobStarts()
    starts.set("g0", pod(1, gang="g"), now=100)
    starts.set("g1", pod(1, gang="g"), now=100)
    assert starts.set("g0", pod(1, gang="g", on_node=True), now=110) is None
    assert starts.set("g1", None, now=120) == ("1", 20)
    assert starts.set("g0", None, now=130) is None


def test_a_pod_whose_creation_is_unknown_is_not_counted_and_a_clock_that_is_behind_is_no_wait():
    starts = JobStarts()
    assert starts.set("a", pod(created=0, on_node=True), now=100) is None
    assert starts.set("b", pod(created=200, on_node=True), now=100) == ("1", 0)
