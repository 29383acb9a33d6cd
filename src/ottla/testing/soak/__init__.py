"""Hours of faults and load with every part of the product, and a report of what happened: `make soak HOURS=2`."""
