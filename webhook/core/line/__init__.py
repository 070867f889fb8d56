"""Which waiting pod starts next, on what terms, and why the others wait; gangs among them."""
