"""Fairgate: fair GPU sharing at the admission door, with the stock scheduler."""

__version__ = "0.1.0"
