# Completion of runnel-central, runnel-lab and runnel-worker in bash, from what their --help prints.

_runnel_help() {
  local page=--help
  [ -z "$2" ] || page=--help-all
  "$1" ${2:+"$2"} $page 2>/dev/null || "$1" ${2:+"$2"} --help 2>/dev/null
}

_runnel() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command="" words
  if [ "$COMP_CWORD" -gt 1 ] && [[ ${COMP_WORDS[1]} != -* ]]; then command=${COMP_WORDS[1]}; fi
  case $before in
    --*-dir | --data | --config | --summary | --log | --tensorboard | --journal | --report | --onnx | --npz | --init-from)
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return
      ;;
    --model | --dataset | --recipe | --policy | --schedule | --backend)
      # The names behind the first colon of the flag's text, without what is said of each.
      words=$(_runnel_help "$program" "$command" |
        sed -n "/^  $before /,/^  -/p" | sed '1s/^  --[a-z-]* [^ ]*//; 2,$ { /^  -/d }' | tr '\n' ' ' |
        sed 's/([^)]*)//g; s/: /\n/' | tail -n +2 | grep -o '[a-z0-9_]\{2,\}')
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
      return
      ;;
  esac
  if [[ $word == -* ]]; then
    words=$(_runnel_help "$program" "$command" | grep -o '^  -[-a-z,]*' | grep -o -- '--[a-z-]*')
  elif [ "$COMP_CWORD" -eq 1 ]; then
    words=$("$program" --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z-]*\)  .*/\1/p')
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _runnel runnel-central runnel-lab runnel-worker
