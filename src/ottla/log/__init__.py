"""The log: partitions as Kafka's own files, from the file system seam up to the manager of all logs."""
