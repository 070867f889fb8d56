"""Which pods do not use their GPUs: series of utilization in, verdicts out. No I/O, no clock."""
