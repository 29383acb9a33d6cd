"""Administration of a cluster over the wire protocol: what can be asked of a cluster, and what it can be told to do.

`cluster.Cluster` finds brokers, coordinators and leaders, and sends requests. Each other module covers one subject
(`topics`, `groups`, `configs`, ...) with functions that take a `Cluster` and return typed results. The client API, the
command line tools and the pipeline stand on this package; it knows nothing of the broker's implementation.
"""
