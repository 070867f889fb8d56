"""What schedulers came to: counted for each of them, with the latest of each priority."""

from webhook.core.reclaim.evictions import Attempts


def test_each_scheduler_has_its_own_count_and_its_latest_pod_of_each_priority():
    attempts = Attempts()
    for scheduler, priority, came in [("", 0, 5), ("", 0, 9), ("", 0, 7), ("", 1, 3), ("other", 0, 20)]:
        attempts.add(scheduler=scheduler, priority=priority, came=came)
    assert attempts.count == {"": 4, "other": 1}
    assert attempts.latest == {("", 0): 9, ("", 1): 3, ("other", 0): 20}
