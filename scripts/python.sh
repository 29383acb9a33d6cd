#!/bin/sh
# Prints the Python to make .venv with: the first optimised build of 3.11 or newer, or else python3.
# A build without profile-guided optimisation, as version managers make it by default, costs 9 to 25 % more CPU.
cd "$(dirname "$0")/.." || exit 1
for python in python3 python3.11 python3.12 python3.13 /usr/bin/python3; do
  if command -v "$python" >/dev/null && "$python" -I src/ottla/interpreter.py 2>/dev/null; then
    command -v "$python"
    exit 0
  fi
done
echo python3
