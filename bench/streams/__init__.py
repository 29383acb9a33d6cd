"""Word counts by other engines, to run beside ours."""
