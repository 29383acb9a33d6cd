"""From a topology to Spark: which nodes run together, rows between them, and the query that runs it all."""
