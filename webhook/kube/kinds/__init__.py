"""Kinds of workloads: all that is known of each as one row, and the readers of its objects. Pure: documents in."""
