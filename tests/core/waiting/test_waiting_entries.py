"""Entries of waiting pods, kept by events, and standings from usage."""

from tests.core.support.make import ALICE, gpus, policy, pool, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.line.line import MODEL, SHARE, TEAM, USER, NeedKey, WaitingEntries, queued_pod
from webhook.core.model.amounts import GpuModel
from webhook.core.model.policy import Share


def keys(view):
    view.sync()
    return {entry.key for entry in view.queue.entries()}


def test_entries_follow_the_pods_and_leave_out_those_of_the_ledger():
    place = world()
    place.set_waiting(waiting("before"))
    view = WaitingEntries(place)
    place.set_waiting(waiting("later"))
    assert keys(view) == {"uid-before", "uid-later"}
    place.set_waiting(waiting("later", is_terminating=True))
    place.remove_pod("uid-before")
    assert keys(view) == set()


def test_so_many_at_a_time_are_taken_note_of_and_none_is_forgotten():
    place = world()
    for name in "abcde":
        place.set_waiting(waiting(name))
    view = WaitingEntries(place)
    sizes = []
    while not view.is_synced:
        view.sync(most=2)
        sizes.append(len(view.queue))
    assert sizes == [2, 4, 5]


def test_a_change_calls_who_listens():
    place, calls = world(), []
    view = WaitingEntries(place)
    view.on_change = lambda: calls.append(True)
    place.set_waiting(waiting("a"))
    view.put_back("uid-a")
    assert len(calls) == 2


def test_a_standing_is_the_share_and_what_is_used_and_borrowed_of_it():
    model = GpuModel("A100")
    shares = team(guaranteed=4, weight=3, models={model: Share(gpus(2))})
    held = [resident(3, node="n0", user=ALICE.username), resident(2, node="n1", tier="preemptible")]
    view = WaitingEntries(world(policy(shares), residents=held))
    standing = view.of("team-a")
    assert (standing.guaranteed, standing.used, standing.borrowed) == (gpus(4), gpus(3), gpus(2))
    assert (standing.weight, standing.models[model].guaranteed) == (3, gpus(2))
    assert (view.held("team-a", ALICE.username), view.held("team-a", None)) == (gpus(3), gpus(2))


def test_a_queued_pod_names_the_limits_that_count_it():
    model = GpuModel("A100")
    place = world(policy(team(models={model: Share(gpus(2))}, per_user=gpus(1))))
    found = queued_pod(waiting("a", 2, user="alice", tier_label="guaranteed", priority=7), place)
    want = {(TEAM, "team-a"), (USER, "team-a", "alice"), (SHARE, "team-a"), (MODEL, "team-a", model)}
    assert (set(found.limits), found.priority, found.gpus) == (want, 7, gpus(2))


def test_equal_templates_are_of_one_kind_and_pools_set_them_apart():
    pools = (pool("a", teams=frozenset({"team-a"})), pool("b", teams=frozenset({"team-b"})))
    place = world(policy(team(), team("team-b"), pools=pools))
    one, same, other = (
        queued_pod(waiting(name, namespace=of), place)
        for name, of in (("x", "team-a"), ("y", "team-a"), ("z", "team-b"))
    )
    assert one.kind == same.kind
    assert one.kind != other.kind
    assert one.sites.isdisjoint(other.sites)


def test_kinds_with_equal_hashes_are_still_different():
    assert NeedKey(-1) != NeedKey(-2), "hash(-1) == hash(-2)"
    assert NeedKey("x") == NeedKey("x")
