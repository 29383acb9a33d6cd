"""The share coordinator: what became of the records of share partitions, kept in `__share_group_state`."""
