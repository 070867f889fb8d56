"""The trace, the lists and the placers that packing compares."""
