#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" reassign-partitions "$@"
