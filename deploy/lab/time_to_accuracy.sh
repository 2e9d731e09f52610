#!/usr/bin/env bash
# Seconds until a scenario's training has an accuracy, by method and bandwidth; deploy/lab/time_to_accuracy.sh --help.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/time_to_accuracy.py" "$@"
