#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" client-metrics "$@"
