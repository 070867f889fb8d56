"""Nodes and what is free on them, and the score by which a pod's nodes are chosen."""
