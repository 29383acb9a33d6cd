"""Share partitions: queues on top of partitions, where a record goes to one consumer and is gone once acknowledged."""
