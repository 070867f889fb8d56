"""A pod's life: one table of what a pod is charged, which room it takes and how it may be removed, at each stage."""
