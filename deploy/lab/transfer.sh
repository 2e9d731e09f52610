#!/usr/bin/env bash
# Transfer times over a shaped link, beside raw TCP; deploy/lab/transfer.sh --help.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/transfer.py" "$@"
