"""Administration of a cluster over the wire protocol: look at what a cluster has, and change it.

`cluster.Cluster` finds brokers, coordinators and leaders, and sends requests. Each other module covers one subject
(`topics`, `groups`, `configs`, ...) with functions that take a `Cluster` and return typed results. The client API, the
command line tools and the pipeline stand on this package; it knows nothing of the broker's implementation.
"""
