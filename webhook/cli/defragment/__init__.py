"""`fairgate defragment`: the moves of running pods that would make room for those that wait."""
