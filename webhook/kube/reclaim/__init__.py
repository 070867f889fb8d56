"""The fields of pods and budgets that reclaim reads, and its patches of nodes and pods."""
