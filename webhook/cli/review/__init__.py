"""`fairgate review`: would these manifests be admitted, on what terms, where, and if not why."""
