"""`ottla demo`: a broker, records that keep coming, two pipelines on Spark, and a table of what they find.

It is a user like any other: the broker and Spark are processes of their own, and all else goes over the wire.
"""
