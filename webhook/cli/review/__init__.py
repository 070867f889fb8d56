"""`fairgate review`: would these manifests be admitted, with which tier, on which nodes, and if not, why."""
