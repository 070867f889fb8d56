"""Reclaim for queued pods: for which of them GPUs are reclaimed, and the plan for those that a limit keeps out."""
