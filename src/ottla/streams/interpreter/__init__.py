"""The meaning of a topology in plain Python: processors, stores, tasks, and the driver for tests."""
