#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" streams-application-reset "$@"
