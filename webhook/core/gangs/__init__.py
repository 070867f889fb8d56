"""Gangs that wait: which are complete, how large they are, and their members that are made only later."""
