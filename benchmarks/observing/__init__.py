"""Processes of benchmarks/observed.py: a client of the webhook, people who look, pods that come and go."""
