"""How connectors run: cycles of sources and sinks, in the worker's process, in resident tasks or as Spark jobs."""
