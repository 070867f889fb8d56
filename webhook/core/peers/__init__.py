"""Rules between pods: affinity, anti-affinity and spreading, over counted pods."""
