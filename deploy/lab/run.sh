#!/usr/bin/env bash
# One training over several hosts made out of one; deploy/lab/run.sh --help.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/run.py" "$@"
