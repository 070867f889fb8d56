"""`fairgate status`: who has what, where, and what would fit now."""
