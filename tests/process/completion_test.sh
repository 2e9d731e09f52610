#!/usr/bin/env bash
# What bash completes, from the programs in the folder that is given.
set -uo pipefail
PATH=${1:?folder of the programs}:$PATH
# shellcheck source=deploy/package/completion.bash
. "$(dirname "${BASH_SOURCE[0]}")/../../deploy/package/completion.bash"
failed=0

# completes "WORD" LINE...: WORD is offered for the last word of the line.
completes() {
  local wanted=$1
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _runnel
  case " ${COMPREPLY[*]} " in
    *" $wanted "*) ;;
    *)
      echo "'$*' does not offer $wanted, but: ${COMPREPLY[*]}"
      failed=1
      ;;
  esac
}

completes train runnel-central tr
completes --checkpoint-dir runnel-central train --check
completes vgg16_bn runnel-central train --model vgg1
completes niti runnel-central train --recipe n
completes sync_1f1b runnel-central train --schedule s
completes uniform runnel-central train --policy ""
completes --join runnel-worker --j
completes simulate runnel-lab sim
exit "$failed"
