"""What judging gangs may cost."""

from tests.core.support.make import world
from tests.core.support.waiting import member
from webhook.core.queue.queued_pod import entry_of
from webhook.core.queue.verdict import Fits, Never, NoRoom
from webhook.core.release.gang_rests import MEMBERS_PER_PASS, MEMBERS_PER_SECOND, GangRests
from webhook.core.release.queue_view import queued_pod


def gang(name, count):
    place = world()
    pods = [member(f"{name}-{number}", name) for number in range(count)]
    return entry_of(queued_pod(pod, place)._replace(gang=pod.pod.gang.id) for pod in pods)


def test_a_large_gang_rests_for_a_time_by_its_size_and_a_small_one_does_not():
    rests, large, small = GangRests(), gang("large", 2 * MEMBERS_PER_SECOND), gang("small", 4)
    rests.begin(now=100)
    rests.note(large, NoRoom(), now=100)
    rests.note(small, NoRoom(), now=100)
    rests.begin(now=101)
    assert (rests.known(large, now=101), rests.known(small, now=101)) == (NoRoom(), None)
    rests.begin(now=102)
    assert rests.known(large, now=102) is None


def test_a_gang_with_another_member_is_judged_at_once():
    rests = GangRests()
    rests.note(gang("g", MEMBERS_PER_SECOND), NoRoom(), now=100)
    assert rests.known(gang("g", MEMBERS_PER_SECOND + 1), now=100) is None


def test_gangs_behind_those_that_used_up_a_pass_have_their_turn_in_the_next():
    rests = GangRests()
    count = 50
    gangs = [gang(f"g{number}", count) for number in range(2 * MEMBERS_PER_PASS // count)]
    judged = []
    for now in (100, 101):
        rests.begin(now=now)
        for each in gangs:
            if rests.known(each, now=now) is None:
                judged.append(each.key)
                rests.note(each, NoRoom(), now=now)
    assert judged == [each.key for each in gangs]
    assert rests.known(gangs[0], now=102) == NoRoom()


def test_one_gang_of_any_size_is_judged_in_each_pass_and_one_that_starts_does_not_rest():
    rests, large = GangRests(), gang("large", MEMBERS_PER_PASS + 1)
    assert rests.known(large, now=100) is None
    rests.note(large, Fits(), now=100)
    assert rests.known(large, now=100) == Never(), "used up"
    rests.begin(now=100)
    assert rests.known(large, now=100) is None


def test_the_search_for_domains_counts_as_members_do():
    rests, small = GangRests(), gang("small", 2)
    rests.note(small, NoRoom(), now=100, extra=MEMBERS_PER_SECOND)
    rests.begin(now=100)
    assert rests.known(small, now=100) == NoRoom(), "it rests"
    rests = GangRests()
    judged = 0
    for number in range(100):
        each = gang(f"g{number}", 2)
        if rests.known(each, now=100, extra=MEMBERS_PER_PASS // 8) is None:
            judged += 1
            rests.note(each, NoRoom(), now=100, extra=MEMBERS_PER_PASS // 8)
    assert judged <= 8
