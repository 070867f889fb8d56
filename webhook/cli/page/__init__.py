"""`fairgate page`: the cluster in a browser."""
