#!/usr/bin/env bash
# A scenario under several policies and bandwidths; deploy/lab/sweep.sh --help.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/sweep.py" "$@"
