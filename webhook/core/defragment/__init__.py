"""Moves of running pods that free GPUs on one node: which pods may move, the cheapest moves, what they change."""
