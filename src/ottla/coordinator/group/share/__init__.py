"""Share groups (KIP-932): members that share partitions, and the share state of these partitions."""
