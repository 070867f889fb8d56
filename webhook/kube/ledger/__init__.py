"""Fairgate's own objects: TeamLedger and Report, their fields and definitions."""
