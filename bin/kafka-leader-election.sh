#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" leader-election "$@"
