"""Log compaction: `log_cleaner` schedules it, `selection` picks a log, `compaction` rewrites its segments."""
