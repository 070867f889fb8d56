"""Pods that wait for nodes that cannot take them, while others could."""

from dataclasses import replace

import pytest

from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, asker, borrower, indexed, take
from webhook.core.line.judged_pod import BorrowedRoom
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import Constraints, NodeTerm, Operator, Requirement, pack
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import SpreadRule
from webhook.core.placement.rejecting_nodes import STRIKES, Rejection
from webhook.core.reclaim.reclaim_index import STRANDED_SECONDS, is_stranded

OLD = NOW - STRANDED_SECONDS


def only(*names):
    """The constraints of a pod that is bound to these nodes, one term each."""
    terms = (NodeTerm(fields=(Requirement("metadata.name", Operator.IN, (name,)),)) for name in names)
    return Constraints(terms=tuple(terms))


def pinned(*nodes, chosen=None, created=OLD, **more):
    chosen = tuple(NodeName(name) for name in (nodes if chosen is None else chosen))
    return asker("p", 8, created=created, constraints=only(*nodes), chosen=chosen, **more)


def full(name, node):
    """A guaranteed pod that takes all of a node."""
    found = borrower(name, 8, on=node)
    return replace(found, pod=found.pod._replace(tier_label="guaranteed"))


def judged(waiting, *others, nodes=2, **more):
    reclaim_index, world = indexed(*others, waiting, nodes=nodes)
    for name, changes in more.items():
        world.set_node(make.node(name, **changes))
    assert [each.pod.uid for each in reclaim_index.pinned()] == ["p"]
    return is_stranded(waiting, world, now=NOW)


def test_a_pod_whose_nodes_are_gone_is_stranded():
    assert judged(pinned("lost", "gone"))


def test_a_pod_whose_nodes_are_cordoned_is_stranded():
    assert judged(pinned("n0"), n0={"is_cordoned": True})


def test_a_pod_whose_nodes_filled_up_is_stranded():
    assert judged(pinned("n0"), borrower("a", 8))


@pytest.mark.parametrize(
    "waiting",
    [
        pinned("lost", created=OLD + 1),
        pinned("lost", is_gated=True),
        pinned("lost", "n1"),
        pinned("lost", chosen=("n0",)),
    ],
    ids=["it has not waited long", "with a scheduling gate", "one of its nodes has room", "its user chose that node"],
)
def test_other_pods_are_not_stranded(waiting):
    assert not judged(waiting)


def test_no_pod_is_replaced_while_there_is_no_room():
    assert not judged(pinned("lost"), borrower("a", 8), borrower("b", 8, on="n1"))


def test_held_room_does_not_count():
    waiting = pinned("lost")
    _, world = indexed(waiting, nodes=1)
    assert is_stranded(waiting, world, now=NOW)
    assert not is_stranded(waiting, world, now=NOW, held=world.fleet.bit("n0"))


def test_a_node_that_rejects_the_teams_pods_is_no_other_node_for_it():
    waiting = pinned("n0")
    _, world = indexed(full("a", "n0"), waiting, nodes=2)
    assert is_stranded(waiting, world, now=NOW)
    world.rejecting_nodes.tick(NOW)
    for number in range(STRIKES):
        rejection = Rejection(NodeName("n1"), waiting.namespace, Uid(f"u{number}"), NOW, "UnexpectedAdmissionError")
        world.rejecting_nodes.note(rejection)
    assert not is_stranded(waiting, world, now=NOW)


def test_a_bound_pod_is_not_stranded():
    waiting = pinned("n0")
    reclaim_index, world = indexed(waiting)
    take(borrower("p", 8), reclaim_index, world)
    assert list(reclaim_index.pinned()) == []


# -- by the pod's own topology spread


BY_HOST = SpreadRule("host", 1, True, LabelSelector((make.requirement("app", "In", "web"),)))


def spread(*nodes, others=(), by=BY_HOST):
    """A pod of one GPU that may go to these nodes of four, with pods that its skew counts on others."""
    waiting = asker(
        "p",
        1,
        created=OLD,
        constraints=only(*nodes),
        chosen=tuple(map(NodeName, nodes)),
        labels={"app": "web"},
        topology=(by,),
    )
    _, world = indexed(waiting, nodes=0)
    for number in range(4):
        world.set_node(make.node(f"n{number}", labels={"host": f"n{number}"}))
    for number, name in enumerate(others):
        world.set_pod(make.resident(uid=f"o{number}", namespace="team-b", node=name, packed=pack({"app": "web"})))
    return is_stranded(waiting, world, now=NOW)


BEYOND_THE_LIST = BY_HOST._replace(honors_affinity=False)


def test_a_pod_whose_nodes_exceed_the_skew_is_stranded():
    assert spread("n0", others=["n0"], by=BEYOND_THE_LIST)


def test_a_pod_that_kube_scheduler_would_place_is_not():
    assert not spread("n0", others=["n0"]), "it counts in the list, where no node has fewer"
    assert not spread("n0", "n1", others=["n0"], by=BEYOND_THE_LIST)


def test_no_pod_is_replaced_if_no_node_meets_the_skew():
    nowhere = BEYOND_THE_LIST._replace(min_domains=5)
    assert not spread("n0", others=["n0", "n1", "n2", "n3"], by=nowhere)


class TestBesideBorrowedRoom:
    """The chosen node was taken by another pod of a guaranteed share: reclaim can make room elsewhere only."""

    def judged(self, waiting, *others, held=0):
        _, world = indexed(*others, waiting, nodes=2)
        return is_stranded(waiting, world, now=NOW, held=held, could_hold=BorrowedRoom(world).could_hold)

    def test_a_pod_inside_its_share_is_stranded(self):
        assert self.judged(pinned("n0"), full("a", "n0"), borrower("b", 8, on="n1"))

    def test_it_is_not_while_its_own_node_has_borrowed_room(self):
        assert not self.judged(pinned("n0"), borrower("a", 8, on="n0"), borrower("b", 8, on="n1"))

    def test_it_is_not_where_all_gpus_are_guaranteed_or_held_for_others(self):
        assert not self.judged(pinned("n0"), full("a", "n0"), full("b", "n1"))
        assert not self.judged(pinned("n0"), full("a", "n0"), borrower("b", 8, on="n1"), held=0b11)

    def test_a_pod_that_would_borrow_is_not(self):
        asks = pinned("n0")
        asks = replace(asks, pod=asks.pod._replace(tier_label="preemptible"))
        assert not self.judged(asks, full("a", "n0"), borrower("b", 8, on="n1"))
