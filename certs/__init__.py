"""Certificates: make, keep, renew. Knows nothing of the webhook."""
