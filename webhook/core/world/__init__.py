"""The state of the cluster that decisions read, kept by events."""
