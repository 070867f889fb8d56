"""`fairgate report`: a summary of decisions from the servers' logs."""
