"""Pods that do not use their GPUs: utilization in, verdicts and marks out, evictions where policy says so."""
