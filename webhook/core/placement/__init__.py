"""Nodes and what is free on them, rules between pods, and the score by which a pod's nodes are chosen."""
