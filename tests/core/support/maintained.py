"""A live world of nodes that operators change, with slices of GPUs among its resources."""

from tests.core.support.make import gpus, policy
from webhook.core.model.amounts import Namespace, ResourceName
from webhook.core.model.node import Maintenance
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.world.world import World

ONE_G = ResourceName("nvidia.com/mig-1g.5gb")
MIG, DRIVER = Maintenance.PARTITIONING, Maintenance.DRIVER_UPGRADE
WEIGHTS = {**BUILT_IN_RESOURCES, ONE_G: gpus(1) // 7}


def live(*nodes, of=None):
    """The world, with namespace team-a, one thousand seconds after the epoch."""
    made = World(of or policy(resources=WEIGHTS), is_live=True)
    made.set_namespace(NamespaceFacts(Namespace("team-a")))
    made.tick(1_000)
    for each in nodes:
        made.set_node(each)
    return made
