"""A Ray cluster of several nodes on one machine, for `recipes_check.py`, in the environment that has Ray.

It prints its address and the ids of its workers, then takes commands: `remove ID` ends a node, `add` adds one, and the
end of its input ends all.
"""

import sys

from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
sys.stdout.write(" ".join([cluster.address, *(node.node_id for node in nodes)]) + "\n")
sys.stdout.flush()
for line in sys.stdin:
    match line.split():
        case ["remove", node_id]:
            cluster.remove_node(next(node for node in nodes if node.node_id == node_id), allow_graceful=False)
        case ["add"]:
            cluster.add_node(num_cpus=1)
    sys.stdout.write("done\n")
    sys.stdout.flush()
cluster.shutdown()
