"""The room as text: what is written is read back, small, and what cannot be read says why."""

from base64 import b64decode, b64encode
from dataclasses import replace
from zlib import compress, decompress

import msgspec
import pytest

from tests.core.support.make import demand, node, policy, resident, team, world
from tests.core.support.waiting import waiting
from webhook.addons.viewers import room_report as packing
from webhook.addons.viewers.nameless import Anonymizer
from webhook.addons.viewers.room_report import read_room, room_report
from webhook.core.model.amounts import GpuModel, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.demand import PerDevice
from webhook.core.model.node import HOSTNAME, Autoscaler, Devices, KeptPlace
from webhook.core.model.pod import PriorityTriple
from webhook.kube.ledger.reports import ROOM_FORMAT, RoomReport

AT = "2026-11-26T10:00:00Z"


def anonymous(of):
    made = Anonymizer(of)
    list(made.steps())
    return made.result()


def small():
    labels = {"zone": "z"}
    taints = (Taint("dedicated", Effect.NO_SCHEDULE, "x"),)
    shared = ResourceName("aliyun.com/gpu-mem")
    odd = node("odd", taints=taints, is_cordoned=True, model=GpuModel("A100"), devices=Devices(shared, (40, 40)))
    full = world(nodes=[*(node(f"n{i}", labels={**labels, HOSTNAME: f"n{i}"}, created=i) for i in range(3)), odd])
    full.set_priority_class(PriorityTriple("high", 10))
    full.set_pod(resident(2, node=NodeName("n0")))
    share = replace(demand(1), per_device=PerDevice(shared, 20))
    full.set_pod(resident(demand=share, node=NodeName("odd"), devices=(1,)))
    full.set_waiting(waiting("w", 3))
    full.autoscalers = frozenset(Autoscaler)
    return anonymous(full)


def test_what_is_written_is_read_back():
    made = small()
    report = room_report(made, at=AT)
    assert read_room(msgspec.json.decode(msgspec.json.encode(report), type=RoomReport)) == made
    assert (report.nodes, report.pods, report.waiting, report.omitted) == (4, 2, 1, "")
    assert room_report(made, at=AT) == report, "the same world makes the same text: it is written once"


def test_names_of_pods_that_move_are_left_out():
    moving = KeptPlace("Job secret/train", "secret/train-0", TeamName("secret"), demand(1).requests, Uid("u-secret"))
    full = world(nodes=[node("n0", kept=(moving,))])
    report = room_report(anonymous(full), at=AT)
    assert b"secret" not in decompress(b64decode(report.content))
    assert read_room(report).nodes[0].kept == ()


def broken(**fields):
    return replace_struct(room_report(small(), at=AT), **fields)


def replace_struct(report, **fields):
    return msgspec.structs.replace(report, **fields)


PROBLEMS = {
    "another version": (broken(format=ROOM_FORMAT + 1), "has format"),
    "too large": (broken(content="", omitted="everything: it is large"), "omits everything: it is large"),
    "no base64": (broken(content="?"), "cannot be read"),
    "not compressed": (broken(content=b64encode(b"{}").decode()), "cannot be read"),
    "cut off": (broken(content=b64encode(compress(b"{}" * 900)[:-8]).decode()), "cut off"),
    "no JSON": (broken(content=b64encode(compress(b"{")).decode()), "cannot be read"),
    "a shape that is not there": (
        broken(content=b64encode(compress(b'{"shaped":[["n",7,0,false]]}')).decode()),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_cannot_be_read_says_why(case):
    report, why = PROBLEMS[case]
    with pytest.raises(ValueError, match=why):
        read_room(report)


def test_what_unpacks_to_more_than_is_ever_published_is_not_read(monkeypatch):
    monkeypatch.setattr(packing, "_MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="longer than any"):
        read_room(broken(content=b64encode(compress(b" " * 100_000)).decode()))


def test_what_is_too_large_is_left_out_the_line_first(monkeypatch):
    made = small()
    size = len(room_report(replace_struct(made, waiting=()), at=AT).content)
    monkeypatch.setattr(packing, "MAX_ROOM_BYTES", size)
    without = room_report(made, at=AT)
    assert (without.pods, without.waiting, read_room(without).waiting) == (2, 0, ())
    assert without.omitted.startswith("the queue")
    monkeypatch.setattr(packing, "MAX_ROOM_BYTES", size - 1)
    nothing = room_report(made, at=AT)
    assert (nothing.content, nothing.nodes) == ("", 0)
    assert f"at most {size - 1:,} are published" in nothing.omitted


@pytest.mark.slow
def test_a_large_cluster_has_room_in_a_report():
    """5,000 nodes with the labels of a cloud, 10,000 pods of 1,000 teams on them, and 10,000 in line."""
    common = {f"cloud.example/label-{i}": f"value-of-the-label-{i}" for i in range(40)}
    nodes = [
        node(
            f"gpu-{i:04}",
            gpus=8,
            created=1_700_000_000 + i,
            labels={**common, HOSTNAME: f"gpu-{i:04}", "rack": i // 16},
        )
        for i in range(5000)
    ]
    nodes = [replace(each, labels={key: str(value) for key, value in each.labels.items()}) for each in nodes]
    full = world(policy(*(team(f"team-{i}") for i in range(1000))), nodes)
    for i in range(10_000):
        at = NodeName(f"gpu-{i % 5000:04}")
        full.set_pod(
            resident(1 + i % 4, uid=f"uid-{i}", namespace=f"team-{i % 1000}", node=at, created=1_795_000_000 + i)
        )
        full.set_waiting(waiting(f"w{i}", 1 + i % 8, namespace=f"team-{i % 1000}", created=1_795_100_000 + i))
    report = room_report(anonymous(full), at=AT)
    assert len(report.content) < packing.MAX_ROOM_BYTES
    assert (report.nodes, report.pods, report.waiting) == (5000, 10_000, 10_000)
