#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" share-consumer-perf-test "$@"
