"""What reclaim reads of pods and budgets, and what it writes on nodes and pods."""
