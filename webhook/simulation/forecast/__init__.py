"""When waiting pods are likely to start: the present, simulated several times with measured run times."""
