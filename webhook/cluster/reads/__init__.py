"""Reads a cluster once, for commands that look and leave."""
