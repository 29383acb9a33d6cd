"""`ottla console`: a web console for any Kafka cluster. A process of its own that speaks only the wire protocol.

It reads the cluster with a sampler and shows pages from what the sampler knows; changes go through plans.
"""
