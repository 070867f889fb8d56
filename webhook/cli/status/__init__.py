"""`fairgate status`: teams, the GPUs of every node, and what would fit now."""
