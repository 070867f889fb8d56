"""The state that all viewers share: one watch, kept rows, and work on snapshots in processes of their own."""
