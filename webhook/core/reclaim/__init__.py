"""Which borrowed GPUs are reclaimed for which pods, and the state of each eviction."""
