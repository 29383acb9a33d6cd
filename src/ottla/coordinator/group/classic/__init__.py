"""Classic groups: a member, the leader, assigns partitions; the coordinator synchronizes the members."""
