#!/usr/bin/env bash
# The accuracy tables of FracTrain and Mandheling in our form; deploy/accuracy_table.sh --help.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/lab/accuracy_table.py" "$@"
