"""Clusters as files: reading and writing them, manifests as streams, pseudonyms."""
