"""The queue: which of the waiting pods starts next, and on what terms. Knows teams and shares, not nodes."""
