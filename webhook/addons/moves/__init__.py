"""Moves of running pods that the evictor carries out: when, for which pods, and what became of them."""
