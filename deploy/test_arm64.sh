#!/usr/bin/env bash
# Builds the kernels and codecs for 64-bit ARM and runs their tests on emulated processors.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# By what they can run: everything, no dot product (Raspberry Pi 4), with it (Raspberry Pi 5). The
# first runs every test; the others those of INT8 products, the one thing that differs between them.
processors=(max cortex-a72 cortex-a76)
chosen='backend|graph|integer|int8|niti'
# Transports and schedules are not about kernels; isa_symbols_test is a script over the objects of x86-64; backends_test and
# hexagon_test start programs, which the emulator cannot; the last three have no target of their name.
left_out='transport|isa_symbols|schedule|backends_test|hexagon|vendor_host_android|opencl_compilers|opencl_hosted'
packages=(g++-aarch64-linux-gnu qemu-user)
folders=(base compress conformance kernels)

usage() {
  cat <<END
usage: deploy/test_arm64.sh [--quick] [CTEST ARGUMENTS...]

Cross-compiles into build/arm64 (packages for it: build/arm64-sysroot) and runs the tests of
${folders[*]} under QEMU as ${processors[*]}. Installs ${packages[*]}
where they are missing. Prints "skipped: ..." and ends with 0 where compiler, emulator or packages
cannot be had. Needs what deploy/packages.sh test installs.

  --quick   on the first processor only, which has the instructions of the others too; an eighth of the random cases, no whole
            trainings and inferences, nothing that caches decide, no tests of base

Emulated times say nothing about devices.
END
}

skip() {
  printf 'skipped: %s\n' "$*"
  exit 0
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
  --quick)
    processors=("${processors[0]}")
    left_out+='|cpu_fp32_fusion|dorefa|sbm|rescale_bytes|niti_bytes|inference|compiler|batch_split|mixed_backend|optimizer'
    folders=(compress conformance kernels)
    export RUNNEL_CASES_PERCENT=12
    export GTEST_FILTER='-*WidePassesInt32*:*WideWeightGradient*:*WhateverTheCache*:*OfATypicalTensor*:*_threads3:*NetsEndWith*:*LeNetLearns*:*UpdatesInTheBackward*'
    shift
    ;;
esac
cd "$repository"

have_tools() {
  command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null
}

install_tools() {
  local prefix=()
  [ "$(id -u)" -eq 0 ] || prefix=(sudo -n)
  "${prefix[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    install -y --no-install-recommends "${packages[@]}"
}

if ! have_tools; then
  [ "${RUNNEL_SKIP_PACKAGES:-}" != 1 ] || skip "no ${packages[*]}, and RUNNEL_SKIP_PACKAGES=1"
  say "packages: installing ${packages[*]}"
  { install_tools && have_tools; } || skip "${packages[*]} cannot be installed here (above)"
fi
bash deploy/cross/sysroot.sh build/arm64-sysroot || skip "no arm64 packages (above)"

say "configure build/arm64"
# The packages have OpenCL's headers, for a static worker; an emulated processor has no driver that tests could use.
cmake --preset dev -B build/arm64 --toolchain deploy/cross/aarch64.cmake -DRUNNEL_TORCH=OFF -DRUNNEL_HAS_OPENCL_HEADERS=OFF \
  >build/arm64-configure.log 2>&1 ||
  { cat build/arm64-configure.log >&2; die "configuring failed (above)"; }

# A test binary's target has its test's name, without the number of a part.
tests=()
for folder in "${folders[@]}"; do
  mapfile -t -O "${#tests[@]}" tests < <(
    ctest --test-dir "build/arm64/tests/$folder" -N -E "$left_out" |
      sed -n 's/^ *Test *#[0-9]*: *\([^.]*\).*/\1/p' | sort -u)
done
[ "${#tests[@]}" -gt 0 ] || die "there are no tests"

say "build: ${tests[*]}"
cmake --build build/arm64 -j "$(compile_jobs)" --target "${tests[@]}" || die "building failed (above)"

pattern="^($(IFS='|'; echo "${tests[*]}"))(\\.|\$)"
for processor in "${processors[@]}"; do
  say "test on $processor"
  if [ "$processor" != "${processors[0]}" ]; then
    pattern="^($(printf '%s\n' "${tests[@]}" | grep -E "$chosen" | paste -sd '|'))(\\.|\$)"
  fi
  QEMU_CPU=$processor ctest --test-dir build/arm64 -R "$pattern" -j2 --output-on-failure \
    --no-tests=error "$@" || die "failed on $processor (above)"
done
say "passed on ${processors[*]}"
