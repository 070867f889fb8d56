"""What judging gangs may cost."""

from tests.core.support.make import world
from tests.core.support.waiting import member
from webhook.core.line.entries import MEMBERS_PER_PASS, MEMBERS_PER_SECOND, Fits, GangPauses, Never, NoRoom, entry_of
from webhook.core.line.line import queued_pod


def gang(name, count):
    place = world()
    pods = [member(f"{name}-{number}", name) for number in range(count)]
    return entry_of(queued_pod(pod, place)._replace(gang=pod.pod.gang.id) for pod in pods)


def test_a_large_gang_pauses_for_a_time_by_its_size_and_a_small_one_does_not():
    pauses, large, small = GangPauses(), gang("large", 2 * MEMBERS_PER_SECOND), gang("small", 4)
    pauses.begin(now=100)
    pauses.note(large, NoRoom(), now=100)
    pauses.note(small, NoRoom(), now=100)
    pauses.begin(now=101)
    assert (pauses.known(large, now=101), pauses.known(small, now=101)) == (NoRoom(), None)
    pauses.begin(now=102)
    assert pauses.known(large, now=102) is None


def test_a_gang_with_another_member_is_judged_at_once():
    pauses = GangPauses()
    pauses.note(gang("g", MEMBERS_PER_SECOND), NoRoom(), now=100)
    assert pauses.known(gang("g", MEMBERS_PER_SECOND + 1), now=100) is None


def test_gangs_behind_those_that_used_up_a_pass_have_their_turn_in_the_next():
    pauses = GangPauses()
    count = 50
    gangs = [gang(f"g{number}", count) for number in range(2 * MEMBERS_PER_PASS // count)]
    judged = []
    for now in (100, 101):
        pauses.begin(now=now)
        for each in gangs:
            if pauses.known(each, now=now) is None:
                judged.append(each.key)
                pauses.note(each, NoRoom(), now=now)
    assert judged == [each.key for each in gangs]
    assert pauses.known(gangs[0], now=102) == NoRoom()


def test_one_gang_of_any_size_is_judged_in_each_pass_and_one_that_starts_does_not_rest():
    pauses, large = GangPauses(), gang("large", MEMBERS_PER_PASS + 1)
    assert pauses.known(large, now=100) is None
    pauses.note(large, Fits(), now=100)
    assert pauses.known(large, now=100) == Never(), "used up"
    pauses.begin(now=100)
    assert pauses.known(large, now=100) is None


def test_the_search_for_domains_counts_as_members_do():
    pauses, small = GangPauses(), gang("small", 2)
    pauses.note(small, NoRoom(), now=100, extra=MEMBERS_PER_SECOND)
    pauses.begin(now=100)
    assert pauses.known(small, now=100) == NoRoom(), "it is paused"
    pauses = GangPauses()
    judged = 0
    for number in range(100):
        each = gang(f"g{number}", 2)
        if pauses.known(each, now=100, extra=MEMBERS_PER_PASS // 8) is None:
            judged += 1
            pauses.note(each, NoRoom(), now=100, extra=MEMBERS_PER_PASS // 8)
    assert judged <= 8
