#!/bin/sh
# Runs the `ottla` command that belongs to this checkout, or else the one on the PATH.
here=$(cd "$(dirname "$0")" && pwd)
for ottla in "$here/ottla" "$here/../.venv/bin/ottla" "$(command -v ottla)"; do
    if [ -x "$ottla" ]; then exec "$ottla" "$@"; fi
done
echo "ottla is not installed: run 'make setup' or 'pip install ottla'" >&2
exit 1
