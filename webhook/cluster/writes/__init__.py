"""Writes to the cluster: evictions, holds, labels, Events, Leases, registration, reports."""
