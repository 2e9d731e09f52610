#!/bin/bash
# Measures the device configurations below with `runnel-lab profile`: one file each in this folder (or --out). Two
# passes over all of them, so that the second is apart in time from the first. What is there already is kept: a run
# that was interrupted goes on where it was.
#
# Needs root and cgroup v1 (cpuset, cpu, freezer): the measured worker has the last processor for itself, everything
# else is moved to the others meanwhile; for configurations of 2 threads other processes stop for some seconds. All of
# it is taken back at the end, also after Ctrl-C.
#
#   predictor/profiles/collect.sh --bin build/release/bin [--out DIR] [--pass 1|2|both] [--only REGEX] [--until HH:MM]
#                                 [--others move|stay]   (stay: a trial, on figures of which nothing should be built)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=$here bin='' pass=both only=. until='' others=move
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { echo "collect.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --bin) bin=$2 ;; --out) out=$2 ;; --pass) pass=$2 ;; --only) only=$2 ;; --until) until=$2 ;; --others) others=$2 ;;
    *) echo "collect.sh: $1 is no option; there are --bin, --out, --pass, --only, --until, --others" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$bin/runnel-lab" ] || { echo "collect.sh: --bin '$bin' has no runnel-lab" >&2; exit 2; }
bin=$(cd "$bin" && pwd)
mkdir -p "$out/unseen"

# name family threads share recipe backend batch load burst_ms models
# share: of a core, by quota; burst: longer than the turns of quota and scheduler where there are any.
# unseen: never trained from; they go to a folder of their own, for predictor-report --unseen.
# models: see below. load: a process beside the worker on its processor, at this niceness.
configurations='
base        threads 1 1    fp32 cpu            16 none        25 wide
t2          threads 2 1    fp32 cpu            16 none        25 wide
t2_b32      threads 2 1    fp32 cpu            32 none        25 wide
t2_avx2     threads 2 1    fp32 cpu:avx2       16 none        25 wide
quota_75    quota   1 0.75 fp32 cpu            16 none        50 narrow
quota_50    quota   1 0.5  fp32 cpu            16 none        120 narrow
quota_30    quota   1 0.3  fp32 cpu            16 none        90 narrow
quota_20    quota   1 0.2  fp32 cpu            16 none        200 narrow
quota_50_a2 quota   1 0.5  fp32 cpu:avx2       16 none        120 narrow
isa_avx512  isa     1 1    fp32 cpu:avx512     16 none        25 wide
isa_avx2    isa     1 1    fp32 cpu:avx2       16 none        25 wide
isa_avx2_32 isa     1 1    fp32 cpu:avx2       32 none        25 narrow
isa_plain   isa     1 1    fp32 cpu:portable   16 none        25 narrow
isa_plain_8 isa     1 1    fp32 cpu:portable   8  none        25 narrow
torch       torch   1 1    fp32 torch          16 none        25 wide
torch_8     torch   1 1    fp32 torch          8  none        25 narrow
torch_32    torch   1 1    fp32 torch          32 none        25 narrow
niti        niti    1 1    niti cpu            16 none        25 int8
niti_32     niti    1 1    niti cpu            32 none        25 int8
niti_avx2   niti    1 1    niti cpu:avx2       16 none        25 int8
niti_a512   niti    1 1    niti cpu:avx512     16 none        25 int8
batch_8     batch   1 1    fp32 cpu            8  none        25 narrow
batch_24    batch   1 1    fp32 cpu            24 none        25 narrow
batch_32    batch   1 1    fp32 cpu            32 none        25 wide
batch_64    batch   1 1    fp32 cpu            64 none        25 narrow
load_half   load    1 1    fp32 cpu            16 spin:0      150 narrow
load_nice5  load    1 1    fp32 cpu            16 spin:5      80 narrow
load_copy   load    1 1    fp32 cpu            16 stream:5    80 narrow
load_copy_2 load    1 1    fp32 cpu:avx2       16 stream:10   100 narrow
mix_40      mix     1 0.4  fp32 cpu:avx2       24 none        70 narrow
u_quota_60  unseen  1 0.6  fp32 cpu            12 none        50 narrow
u_avx2_load unseen  1 1    fp32 cpu:avx2       20 spin:5      80 narrow
u_t2_torch  unseen  2 1    fp32 torch          16 none        25 narrow
'
declare -A models_of=(
  [wide]="mobilenet_v2,har_cnn,lenet,vgg11/8,resnet18/8"
  [narrow]="mobilenet_v2,har_cnn,lenet"
  [int8]="lenet,vgg11/8,resnet18_nobn/8"
)
period_us=5000
# Times are those at this clock (worker/measure/clock_probe.h): about what this machine does in its median minute. Its clock
# moves by +-8 % with what other machines on the same processor do, which is no property of a configuration.
step_ns=1.32

cpus=$(nproc --all)
last=$((cpus - 1))
[ "$last" -ge 1 ] || { echo "collect.sh: needs at least 2 processors" >&2; exit 2; }
cg=/sys/fs/cgroup
for controller in cpuset cpu freezer; do
  [ -d "$cg/$controller" ] || { echo "collect.sh: needs cgroup v1 ($cg/$controller)" >&2; exit 2; }
done
work=$(mktemp -d)
children=()

# Moves every process of a cgroup; kernel threads and those that just ended stay where they are.
move_all() { # from to
  local pid
  for _ in 1 2 3; do
    while read -r pid; do echo "$pid" >"$2/cgroup.procs" 2>/dev/null || true; done <"$1/cgroup.procs"
  done
}

thaw() {
  [ -d "$cg/freezer/runnel-others" ] || return 0
  echo THAWED >"$cg/freezer/runnel-others/freezer.state"
  move_all "$cg/freezer/runnel-others" "$cg/freezer"
  rmdir "$cg/freezer/runnel-others" 2>/dev/null || true
}

end_children() {
  local pid
  for pid in "${children[@]}"; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  children=()
}

restore() {
  trap '' INT TERM HUP
  set +e
  thaw
  end_children
  for group in cpuset/runnel-rest cpuset/runnel-worker cpu/runnel-worker; do
    [ -d "$cg/$group" ] || continue
    for _ in $(seq 30); do
      move_all "$cg/$group" "$cg/${group%%/*}"
      rmdir "$cg/$group" 2>/dev/null && break
      sleep 0.1
    done
  done
  rm -rf "$work"
}
trap restore EXIT
trap 'exit 130' INT TERM HUP

make_groups() {
  mkdir -p "$cg/cpuset/runnel-rest" "$cg/cpuset/runnel-worker" "$cg/cpu/runnel-worker"
  for group in runnel-rest runnel-worker; do cat "$cg/cpuset/cpuset.mems" >"$cg/cpuset/$group/cpuset.mems"; done
  echo "0-$((last - 1))" >"$cg/cpuset/runnel-rest/cpuset.cpus"
  echo "$last" >"$cg/cpuset/runnel-worker/cpuset.cpus"
  [ "$others" = stay ] || move_all "$cg/cpuset" "$cg/cpuset/runnel-rest"
  cat >"$work/worker" <<END
#!/bin/sh
echo \$\$ >$cg/cpuset/runnel-worker/cgroup.procs
echo \$\$ >$cg/cpu/runnel-worker/cgroup.procs
exec $bin/runnel-worker "\$@"
END
  chmod +x "$work/worker"
}

# Everything but this script, what started it, the init process and what listens for commands stops, for at most 60 s.
freeze_others() {
  local keep=" 1 " pid=$$
  while [ "$pid" -gt 1 ]; do keep="$keep$pid "; pid=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status"); done
  [ "$others" = stay ] && return
  mkdir -p "$cg/freezer/runnel-others"
  while read -r pid; do
    case $keep in *" $pid "*) continue ;; esac
    case $(cat "/proc/$pid/comm" 2>/dev/null) in binary_backend | process_api | sshd | '') continue ;; esac
    echo "$pid" >"$cg/freezer/runnel-others/cgroup.procs" 2>/dev/null || true
  done <"$cg/freezer/cgroup.procs"
  echo FROZEN >"$cg/freezer/runnel-others/freezer.state"
  (sleep 60; echo THAWED >"$cg/freezer/runnel-others/freezer.state") 2>/dev/null &
  children+=($!)
}

start_load() { # load
  local work
  case $1 in
    none) return ;;
    spin:*) work='while :; do :; done' ;;
    stream:*) work='exec dd if=/dev/zero of=/dev/null bs=64M 2>/dev/null' ;;
  esac
  nice -n "${1#*:}" sh -c "echo \$\$ >$cg/cpuset/runnel-worker/cgroup.procs
    echo \$\$ >$cg/cpu/runnel-worker/cgroup.procs; $work" &
  children+=($!)
}

file_of() { # name family
  [ "$2" = unseen ] && echo "$out/unseen/$1.profile" || echo "$out/$1.profile"
}

measure() { # one line of the table, pass
  local name=$1 family=$2 threads=$3 share=$4 recipe=$5 backend=$6 batch=$7 load=$8 burst=$9 second=()
  local models=${models_of[${10}]}
  [ "${11}" = 2 ] && second=(--second-pass)
  if [ "$share" = 1 ]; then
    echo -1 >"$cg/cpu/runnel-worker/cpu.cfs_quota_us"
  else
    echo "$period_us" >"$cg/cpu/runnel-worker/cpu.cfs_period_us"
    awk -v p="$period_us" -v s="$share" 'BEGIN {printf "%d\n", p * s}' >"$cg/cpu/runnel-worker/cpu.cfs_quota_us"
  fi
  if [ "$threads" -gt 1 ]; then
    echo "0-$last" >"$cg/cpuset/runnel-worker/cpuset.cpus"
    freeze_others
  else
    echo "$last" >"$cg/cpuset/runnel-worker/cpuset.cpus"
  fi
  start_load "$load"
  local status=0
  # Central waits while the worker measures: it may sit beside it.
  RUNNEL_WORKER=$work/worker sh -c "echo \$\$ >$cg/cpuset/runnel-worker/cgroup.procs; exec \"\$@\"" sh \
    "$bin/runnel-lab" profile --models "$models" --batch-size "$batch" \
    --recipe "$recipe" --backend "$backend" --worker-threads "$threads" --cpu-share "$share" --load "$load" \
    --burst-ms "$burst" --nominal-step-ns "$step_ns" --name "$name" --family "$family" --host "$host" --date "$(date -u +%FT%TZ)" \
    --out "$(file_of "$name" "$family")" "${second[@]}" &
  # Waited for, not run in front: a signal is answered at once.
  children+=($!)
  wait $! || status=$?
  end_children
  thaw
  [ "$status" = 0 ] || echo "collect.sh: $name, pass ${11}: failed with $status" >&2
}

host="$(awk -F': *' '/^model name/ {print $2; exit}' /proc/cpuinfo), $cpus processors, Linux $(uname -r)"
make_groups
[ "$pass" = both ] && passes='1 2' || passes=$pass
for one in $passes; do
  while read -r line; do
    [[ $line =~ ^[a-z] ]] || continue
    name=${line%% *}
    [[ $name =~ $only ]] || continue
    rest=${line#* }
    # shellcheck disable=SC2086
    set -- $rest
    file=$(file_of "$name" "$1")
    [ "$one" = 1 ] && [ -f "$file" ] && continue
    [ "$one" = 2 ] && { [ ! -f "$file" ] || grep -q '"date": ".*, ' "$file"; } && continue
    [ -n "$until" ] && [ "$(date +%H:%M)" \> "$until" ] && { echo "collect.sh: it is $until"; exit 0; }
    # shellcheck disable=SC2086
    measure $line "$one" </dev/null
  done <<<"$configurations"
done
