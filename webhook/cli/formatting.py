"""Formats numbers the same way in all commands."""

from webhook.core.model.text import column_gpus, plural, plural_gpus, span

__all__ = ["column_gpus", "plural", "plural_gpus", "span", "wait_text"]


def wait_text(seconds: float) -> str:
    """Return a wait for a column."""
    return "0" if seconds < 1 else span(seconds)
