"""The share coordinator: keeps the delivery states of share partitions in `__share_group_state`."""
