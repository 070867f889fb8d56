"""Load on a test control plane, and its removal."""
