"""What a topology means, in plain Python: processors, stores and tasks, and the driver for tests."""
