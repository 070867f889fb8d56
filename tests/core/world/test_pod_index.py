"""The pods of the world by UID, namespace and node."""

from tests.core.support.make import JOB, gpus, resident, world
from webhook.core.model.names import TeamName

A = TeamName("team-a")


def test_holders_are_named_by_their_controller_largest_first():
    pods = [resident(2, owner=JOB), resident(3, name="bare"), resident(4, owner=JOB)]
    holders = world(residents=pods).usage(A).largest_holders()
    assert holders == [
        ("team-a/Job/train", gpus(6)),
        ("team-a/Pod/bare", gpus(3)),
    ]
