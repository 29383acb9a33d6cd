#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" metadata-shell "$@"
