"""Loads of a simulation: tables of tasks that were recorded elsewhere, and random ones. Pure: text in, rows out."""
