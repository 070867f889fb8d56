"""Certificates: issuing, storing and renewing. Independent of the webhook package."""
