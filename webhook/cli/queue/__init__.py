"""`fairgate queue`: the pods that wait in the queue, for what, and for how long."""
