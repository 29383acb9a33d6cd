"""Mirrors topics, groups and access from cluster to cluster, as MirrorMaker 2 does, by copying whole batches."""
