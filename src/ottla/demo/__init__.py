"""`ottla demo`: a broker, a stream of records, two pipelines on Spark, and a table of their results.

The demo is a user like any other: the broker and Spark are separate processes, and everything else goes over the wire.
"""
