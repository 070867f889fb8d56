"""The text about a limit: in the requested unit, readable, with useful advice."""

from fractions import Fraction

import pytest

from webhook.core.model.amounts import ONE_GPU, UNLIMITED, ResourceName, User, exact_units
from webhook.core.model.reasons import Statement
from webhook.core.quota.limits import Request, violation
from webhook.core.quota.shares import Holder

GPU, SLICE, MEMORY = ResourceName("nvidia.com/gpu"), ResourceName("nvidia.com/mig-1g.5gb"), ResourceName("gpu-mem")
WEIGHTS = {GPU: ONE_GPU, SLICE: ONE_GPU // 7, MEMORY: Fraction(ONE_GPU, 81_920)}
SEVENTH = ONE_GPU // 7


def asking(**pieces):
    devices = tuple((ResourceName(name), number) for name, number in pieces.items())
    return Request(exact_units(sum(number * WEIGHTS[name] for name, number in devices)), devices, WEIGHTS)


def advice(request, room, limit=8 * ONE_GPU):
    text = violation(request, Statement("team a"), limit, taken=limit - room, room=room, holders=()).text
    return text.partition("; ")[2]


@pytest.mark.parametrize(
    ("request_", "room", "want"),
    [
        pytest.param(asking(**{GPU: 8}), 5 * ONE_GPU, "a request of at most 5 would pass now", id="whole GPUs"),
        pytest.param(
            asking(**{GPU: 8}), 5 * ONE_GPU + SEVENTH, "a request of at most 5 would pass now", id="rounded down"
        ),
        pytest.param(
            asking(**{GPU: 1}),
            5 * SEVENTH,
            "no whole GPU would pass now (5/7 is left): wait until a holder ends, or delete one",
            id="no whole one",
        ),
        pytest.param(
            asking(**{SLICE: 7}),
            5 * SEVENTH,
            "a request of at most 5 nvidia.com/mig-1g.5gb would pass now",
            id="slices in slices",
        ),
        pytest.param(
            asking(**{SLICE: 7}),
            ONE_GPU // 8,
            "no nvidia.com/mig-1g.5gb would pass now (0.125 is left): wait until a holder ends, or delete one",
            id="no slice",
        ),
        pytest.param(
            asking(**{MEMORY: 50_000}), ONE_GPU // 2, "a request of at most 40960 gpu-mem would pass now", id="memory"
        ),
        pytest.param(
            asking(**{MEMORY: 50_000}),
            Fraction(3 * ONE_GPU, 81_920),
            "a request of at most 3 gpu-mem would pass now",
            id="a whole number of pieces that no whole number of units divides",
        ),
        pytest.param(
            asking(**{MEMORY: 50_000}),
            Fraction(3 * ONE_GPU, 81_921),
            "a request of at most 2 gpu-mem would pass now",
            id="almost a piece more",
        ),
        pytest.param(
            asking(**{MEMORY: 3}),
            Fraction(ONE_GPU, 81_921),
            "no gpu-mem would pass now (less than 0.001 is left): wait until a holder ends, or delete one",
            id="almost a piece",
        ),
        pytest.param(
            asking(**{GPU: 1, SLICE: 8}), 9 * ONE_GPU // 7, "a request of at most about 1.29 would pass now", id="mixed"
        ),
        pytest.param(
            asking(**{GPU: 1, MEMORY: 1}),
            Fraction(ONE_GPU, 81_920),
            "a request of less than 0.001 would pass now",
            id="mixed, and next to nothing is left",
        ),
        pytest.param(
            asking(**{GPU: 4}),
            0,
            "no request would pass now: wait until a holder ends, or delete one",
            id="nothing is left",
        ),
        pytest.param(
            asking(**{GPU: 40}),
            0,
            "no request would pass now: wait until a holder ends, or delete one; one of more than 8 never will",
            id="more than the limit never passes",
        ),
    ],
)
def test_the_advice_uses_the_requested_unit(request_, room, want):
    assert advice(request_, room) == want


def test_the_last_piece_that_fits_is_counted():
    room = ONE_GPU // 3
    most = int(advice(asking(**{MEMORY: 81_920}), room).split()[5])
    assert asking(**{MEMORY: most}).gpus <= room < asking(**{MEMORY: most + 1}).gpus


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        (4 * ONE_GPU, "split the work over more pods, or ask for at most 4 per pod"),
        (ONE_GPU // 2, "split the work over more pods, or ask for less per pod"),
    ],
)
def test_a_pod_over_the_limit_per_pod_gets_no_advice_to_wait(limit, want):
    text = violation(
        asking(**{GPU: 5}), Statement("one pod of team a"), limit, taken=0, room=-ONE_GPU, holders=None
    ).text
    assert text.endswith(f"; {want}")
    assert "wait" not in text


def test_a_share_of_a_pod_may_be_a_fraction_of_units():
    text = violation(asking(**{MEMORY: 3}), Statement("one pod of team a"), 20, taken=0, room=0, holders=None).text
    assert text.startswith("one pod of team a: requested less than 0.001 (gpu-mem 3), ")
    assert text.endswith("; split the work over more pods, or ask for at most 1 gpu-mem per pod")


def test_a_share_names_its_resource():
    text = violation(asking(**{SLICE: 3}), Statement("team a"), 0, taken=0, room=0, holders=()).text
    assert text.startswith("team a: requested 3/7 (nvidia.com/mig-1g.5gb 3), limit 0, used 0; ")


def test_no_name_breaks_the_line_or_moves_the_cursor():
    holder = Holder("ns/Job/a\nerror: all is lost\x1b[2J", ONE_GPU, User("eve\r\u202e"))
    text = violation(
        asking(**{GPU: 1}),
        Statement("user {user} in team a", {"user": "x\n"}),
        ONE_GPU,
        taken=ONE_GPU,
        room=0,
        holders=(holder,),
    ).text
    assert text.isprintable()
    assert r"ns/Job/a\nerror: all is lost\x1b[2J 1 (eve\r\u202e)" in text


def test_an_unlimited_limit_can_be_named():
    assert (
        "limit unlimited"
        in violation(asking(**{GPU: 1}), Statement("team a"), UNLIMITED, taken=0, room=0, holders=()).text
    )


def holding(*holders):
    request = asking(**{GPU: 8})._replace(now=10_000)
    text = violation(request, Statement("team a"), 8 * ONE_GPU, taken=8 * ONE_GPU, room=0, holders=holders).text
    return text.partition("largest holders: ")[2]


def test_who_is_deleted_already_is_not_to_be_deleted_again():
    leaving, running = (Holder(f"a/Pod/{name}", 4 * ONE_GPU, is_leaving=name == "old") for name in ("old", "new"))
    assert holding(leaving) == (
        "a/Pod/old 4 (deleted, its node has not ended it); no request would pass now: "
        "wait until the nodes of the deleted pods have ended them"
    )
    assert holding(leaving, running).endswith("no request would pass now: wait until a holder ends, or delete one")
