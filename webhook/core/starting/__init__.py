"""What happens when a waiting pod starts: it is assumed, then charged; room is awaited, or reclaimed for it."""
