"""`fairgate replay`: what a history's pods would have got under another policy."""
