"""Takes Fairgate out of a cluster: what is there, the rights that it needs, and its removal in order."""
