"""One pod at the door: demand, team, limits, pools, tier and nodes, then the answer."""
