"""What happens to records that cannot be processed: tolerance, retries, logs and dead letters."""
