#!/bin/sh
# connect-mirror-maker.sh [-daemon] mm2.properties [--clusters name ...]
if [ "$1" = "-daemon" ]; then
    shift
    nohup "$0" "$@" >"${LOG_DIR:-.}/mirrorMaker.log" 2>&1 </dev/null &
    exit 0
fi
exec "$(dirname "$0")/ottla-run.sh" mirror run "$@"
