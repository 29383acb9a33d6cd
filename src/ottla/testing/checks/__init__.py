"""The promises of a cluster, written once: history and checker of simulated runs and of chaos on real processes."""
