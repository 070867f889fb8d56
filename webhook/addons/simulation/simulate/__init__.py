"""`fairgate simulate`: what a policy does to a load, in simulated time."""
