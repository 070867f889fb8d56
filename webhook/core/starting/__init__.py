"""What happens when a waiting pod starts: it is assumed, then charged, and its room may be awaited."""
