"""The pure core: every decision, without any I/O."""
