# For the accuracy scripts beside it, which source it: runs of the HAR CNN on the UCI-HAR subset. It reads $script (the name that
# errors begin with), $data, $bin, $out and $epochs.

# Checks what the user gave and unpacks the data: sets $folder.
prepare_runs() {
  if [ ! -x "$bin/runnel-central" ]; then
    echo "$script: no $bin/runnel-central: build it first (cmake --preset release && cmake --build --preset release)" >&2
    exit 2
  fi
  if [ ! -f "$data/ucihar-subset/ucihar-subset.tar.gz" ]; then
    echo "$script: no $data/ucihar-subset/ucihar-subset.tar.gz: name the folder with --data" >&2
    exit 2
  fi
  mkdir -p "$out/ucihar"
  [ -n "$(ls -A "$out/ucihar")" ] || tar -xzf "$data/ucihar-subset/ucihar-subset.tar.gz" -C "$out/ucihar"
  folder=$(find "$out/ucihar" -type d -name train -printf '%h\n' | head -1)
}

# One run with its summary in OUT/NAME.json, unless that is there. A run that diverges is a result too.
run_once() { # name, then flags of train
  local name=$1 status=0
  shift
  [ ! -f "$out/$name.json" ] || return 0
  "$bin/runnel-central" train --quick --model har_cnn --augment off --dataset ucihar --data-dir "$folder" --local-workers 3 \
    --epochs "$epochs" "$@" --summary "$out/$name.part" > "$out/$name.log" 2>&1 || status=$?
  if [ "$status" = 0 ]; then
    mv "$out/$name.part" "$out/$name.json"
  elif grep -q "is not finite\|is NaN\|is infinite" "$out/$name.log"; then
    tail -1 "$out/$name.log" | python3 -c 'import json, sys; print(json.dumps({"diverged": sys.stdin.read().strip()}))' > "$out/$name.json"
  else
    echo "$script: $name failed:" >&2
    tail -5 "$out/$name.log" >&2
    exit 1
  fi
  echo "$name done"
}
