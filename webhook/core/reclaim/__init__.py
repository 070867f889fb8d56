"""Which borrowed GPUs are taken back, for whom, and how far each eviction is."""
