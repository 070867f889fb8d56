"""Explanations of decisions, policy replay and team summaries: read only, without decisions of its own."""
