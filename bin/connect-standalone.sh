#!/bin/sh
# connect-standalone.sh [-daemon] worker.properties [connector.properties ...]
if [ "$1" = "-daemon" ]; then
    shift
    nohup "$0" "$@" >"${LOG_DIR:-.}/connect.log" 2>&1 </dev/null &
    exit 0
fi
exec "$(dirname "$0")/ottla-run.sh" connect run "$@"
