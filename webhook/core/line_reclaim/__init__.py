"""Reclaim for pods in line: which of them it makes room for, and the plan for those that a limit keeps out."""
