"""One replica and its ledger object: lost writes, lost objects, lagging watches."""

from tests.core.support.make import gpus, resident
from tests.core.support.replicas import A, Etcd, Replica, Write
from webhook.core.model.amounts import GangId, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import EMPTY_LEDGER_RECORD, ENDED, InFlightCharge, LedgerRecord


def test_a_lagging_watch_counts_folded_charges_until_it_has_seen_the_pods():
    etcd = Etcd()
    one, other = Replica(etcd), Replica(etcd)
    one.judge(["u0"])
    one.finish()
    other.next_record()
    one.etcd.create("u0")
    one.next_event()
    one.fold()
    one.finish()
    other.next_record()
    other.ledger_session.drop_released(other.reached)
    assert other.world.usage(A).total == gpus(1)
    other.next_event()
    other.ledger_session.drop_released(other.reached)
    assert (other.world.usage(A).total, other.world.usage(A).reserved) == (gpus(1), 0)


def test_creations_of_one_name_are_charged_once_until_the_first_is_gone():
    etcd = Etcd()
    one, other = Replica(etcd), Replica(etcd)
    for number in range(5):
        one.judge([f"u/{number}"])
        one.finish()
    assert (len(one.ledger_session.record.flights), one.world.usage(A).total) == (5, gpus(1))
    other.read()
    assert other.world.usage(A).total == gpus(1)
    etcd.create("u/3")
    one.next_event()
    one.ledger_session.drop_released(one.reached)
    assert one.world.usage(A).total == gpus(1), "the pod that exists counts for the others"
    for uid in ("u/0", "u/1", "u/2", "u/4"):
        one.ledger_session.note(Uid(uid), one.ask(uid))
    one.fold()
    one.finish()
    one.ledger_session.drop_released(one.reached)
    assert (set(one.ledger_session.record.flights), one.world.usage(A).total) == (set(), gpus(1))


def test_a_write_in_doubt_is_rejected_after_the_next():
    etcd = Etcd()
    one = Replica(etcd)
    one.judge(["u0"])
    held_up = one.hear_nothing()
    one.judge([])
    one.finish()
    assert not etcd.swap(held_up.base, held_up.record)
    assert not etcd.record.flights


def test_a_write_in_doubt_that_succeeded_is_withdrawn():
    etcd = Etcd()
    one = Replica(etcd)
    one.judge(["u0"])
    held_up = one.hear_nothing()
    assert etcd.swap(held_up.base, held_up.record)
    one.judge(["u1"])
    one.finish()
    assert set(etcd.record.flights) == {"u1"}


def test_an_object_deleted_by_hand_is_created_with_its_charges():
    etcd = Etcd()
    one = Replica(etcd)
    one.judge(["u0"])
    one.finish()
    etcd.record, etcd.record_version = EMPTY_LEDGER_RECORD, 0
    one.read()
    one.judge(["u1"])
    one.finish()
    assert set(etcd.record.flights) == {"u0", "u1"}


def test_an_object_recreated_by_another_replica_gets_the_known_charges_back():
    etcd = Etcd()
    one = Replica(etcd)
    one.judge(["u0"])
    one.finish()
    one.ledger_session.see(LedgerRecord({}, 0, 1), version=etcd.version + 1, identity="another object")
    assert set(one.ledger_session.next_record().flights) == {"u0"}


def test_an_older_version_changes_nothing_while_the_object_is_to_be_read():
    etcd = Etcd()
    one = Replica(etcd)
    for uid in ("u0", "u1"):
        one.judge([uid])
        one.finish()
    version, record = etcd.records[0]
    one.ledger_session.next_record()
    one.ledger_session.discard_draft()
    one.ledger_session.see(record, version=version, identity="object")
    assert set(one.ledger_session.record.flights) == {"u0", "u1"}
    assert one.ledger_session.is_stale, "the watch may be behind the replica's own writes"


KEPT = Uid("reserved:first:0")


def with_room_kept(etcd):
    """Two replicas and a full limit: one GPU of a pod, and one that is kept for a pod of its gang."""
    one, other = Replica(etcd), Replica(etcd)
    charge = Charge(A, Tier.GUARANTEED, gpus(1))
    kept = InFlightCharge(resident(1, uid=KEPT, gang=GangId("team-a/g")), charge, None, 300, 1_900_000_000)
    one.ledger_session.charge(kept)
    one.judge(["first"])
    one.finish()
    other.read()
    assert other.world.usage(A).total == gpus(2)
    return one, other


def take_over(replica):
    """Charge the pod that the room is kept for, as the leader does."""
    charge = Charge(A, Tier.GUARANTEED, gpus(1))
    replica.ledger_session.charge(InFlightCharge(resident(1, uid="follower"), charge, None), replaces=KEPT)
    replica.write = Write(replica.ledger_session.version, replica.ledger_session.next_record(), ("follower",))


def test_room_that_is_kept_goes_over_to_its_pod_with_one_write():
    etcd = Etcd()
    one, other = with_room_kept(etcd)
    assert other.judge(["rival"])
    assert other.write is None, "the limit is full in every replica"
    take_over(one)
    one.finish()
    assert set(etcd.record.flights) == {"first", "follower"}
    other.read()
    for replica in (one, other):
        replica.ledger_session.drop_released(replica.reached)
        assert replica.world.usage(A).total == gpus(2)
        assert not replica.world.gang_reservations.gangs()


def test_room_that_is_kept_stays_where_the_write_of_its_pod_loses_a_race():
    etcd = Etcd()
    one, other = with_room_kept(etcd)
    take_over(one)
    etcd.create("first")
    other.all_events()
    other.fold()
    other.finish()
    one.finish()
    one.read()
    one.all_events()
    assert set(etcd.record.flights) == {KEPT}
    assert one.world.usage(A).total == gpus(2)
    assert one.world.gang_reservations.fitting(GangId("team-a/g"), gpus(1)) is not None
    one.fold()
    one.finish()
    assert set(etcd.record.flights) == {KEPT}, "the next write does not end it either"


def test_room_that_is_kept_and_its_pod_count_once_while_that_is_written():
    etcd = Etcd()
    one, other = with_room_kept(etcd)
    take_over(one)
    other.fold()
    etcd.create("first")
    other.all_events()
    other.fold()
    other.finish()
    one.next_record()
    assert one.world.usage(A).total == gpus(2)


def test_a_charge_is_taken_back_only_while_its_reason_holds():
    etcd = Etcd()
    one, holds = Replica(etcd), True
    one.judge(["u0"])
    one.finish()
    one.ledger_session.withdraw(Uid("u0"), if_still=lambda: holds)
    assert one.ledger_session.must_write
    assert not list(one.ledger_session.pending({Uid("u0")}))
    holds = False
    assert not one.ledger_session.must_write
    assert list(one.ledger_session.pending({Uid("u0")}))
    assert set(one.ledger_session.next_record().flights) == {"u0"}


def test_a_view_shows_the_gang_of_room_that_is_kept_once_it_has_reached_its_charge_and_all_that_left():
    etcd = Etcd()
    one, other = with_room_kept(etcd)
    charged = etcd.record_version
    session = other.ledger_session
    assert [session.shows_gang_of(KEPT, reached) for reached in (charged - 1, charged)] == [False, True]
    etcd.create("first")
    one.all_events()
    one.fold()
    one.finish()
    other.read()
    assert set(session.record.flights) == {KEPT}
    folded = session.record.folded
    assert folded > charged
    assert [session.shows_gang_of(KEPT, reached) for reached in (folded - 1, folded)] == [False, True]
    assert session.shows_gang_of(KEPT, etcd.record_version - 1), "later writes that do not concern it do not matter"


def test_of_what_pods_deleted_by_force_left_so_many_of_a_team_are_listed_and_the_next_once_those_end():
    replica = Replica(Etcd())
    left = [
        InFlightCharge(resident(1, uid=f"{number}/lingers"), Charge(A, Tier.PREEMPTIBLE, gpus(1)), None, lingers=15)
        for number in range(5)
    ]
    other = left[0]._replace(pod=resident(1, uid="b/lingers"), charge=left[0].charge._replace(team=TeamName("team-b")))
    session = replica.ledger_session
    for ended in ((), ("0/lingers",)):
        for uid in ended:
            session.note(Uid(uid), ENDED)
        for _ in range(2):
            session.carry_left([each for each in (*left, other) if each.pod.uid not in ended], most=2)
            replica.fold()
            replica.finish()
        assert set(session.record.flights) == {"b/lingers", "1/lingers", "2/lingers" if ended else "0/lingers"}
    assert session.is_mostly_of(A)
    assert not session.is_mostly_of(TeamName("team-b"))
