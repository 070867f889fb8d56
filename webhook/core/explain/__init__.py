"""Decisions for people who ask why, and policies compared: reads the other rooms, decides nothing."""
