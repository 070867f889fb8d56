"""What the views show, from a world and from events, for one viewer. Pure."""
