"""The decision on one pod: demand, team, limits, pools, tier and nodes."""
