#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" producer-perf-test "$@"
