"""Fairgate: fair GPU sharing by an admission webhook, with the stock scheduler."""

__version__ = "0.1.0"
