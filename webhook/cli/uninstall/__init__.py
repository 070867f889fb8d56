"""`fairgate uninstall`: takes Fairgate out of a cluster."""
