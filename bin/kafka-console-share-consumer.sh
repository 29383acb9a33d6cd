#!/bin/sh
exec "$(dirname "$0")/ottla-run.sh" console-share-consumer "$@"
