"""The page that shows a cluster in a browser, live: read-only, beside the cluster or served in it."""
