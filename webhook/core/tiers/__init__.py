"""Tiers of pods that run: changes when usage changes, adoption of pods without a decision, labels in shadow mode."""
