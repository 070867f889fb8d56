"""Moves of running pods that make room on one node: which pods may move, the cheapest moves, what they change."""
