"""Share groups (KIP-932): members that share partitions, and the share state that has to exist for them."""
