#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" broker-api-versions "$@"
