# Shared by the scripts of this folder, which source it: where the repository is, how to speak,
# how many compilers to run. Needs bash and coreutils only.
# shellcheck shell=bash

# Read by the scripts that source this file.
# shellcheck disable=SC2034
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
  printf '== %s\n' "$*"
}

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# One compiler a processor, but no more than memory holds: the largest source files take 1.5 GB.
compile_jobs() {
  local processors available_kib by_memory
  processors=$(nproc)
  available_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null || true)
  by_memory=$((${available_kib:-0} / 1500000))
  if [ -n "$available_kib" ] && [ "$by_memory" -lt "$processors" ]; then
    processors=$((by_memory > 0 ? by_memory : 1))
  fi
  echo "$processors"
}
