"""`fairgate queue`: the pods that wait in line, for what, and for how long."""
