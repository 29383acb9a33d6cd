#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" kafka-mirror-maker "$@"
