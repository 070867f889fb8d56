"""Releases of waiting pods: whose turn it is by the queue, limits and room by the decision of admission."""
