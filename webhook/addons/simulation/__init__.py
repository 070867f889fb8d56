"""What Fairgate would answer, pod after pod, without a cluster. Pure."""
