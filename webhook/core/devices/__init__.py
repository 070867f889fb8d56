"""Devices of Dynamic Resource Allocation: which claims pods use, what slices offer, what both count."""
