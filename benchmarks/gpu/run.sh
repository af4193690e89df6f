#!/usr/bin/env bash
# Runs one of the GPU studies with the real tuner, and writes its table.
#
#   benchmarks/gpu/run.sh STUDY FOLDER
#
# STUDY is one-gpu-eagle3, one-gpu-standalone or two-gpus-nccl; one-gpu-depths, one-gpu-trees and
# two-gpus-depths are run twice, with hot switching and without (benchmarks/hot_switch.py;
# ORDER=alone or ORDER=switched is one of the two, where a time limit has room for no more).
#
# FOLDER is made, and holds everything: models, database, logs, exports, tables. The same command
# again goes on where the last one stopped (Ctrl-C, a time limit). TUNER_SGLANG_PYTHON names the
# interpreter that has SGLang; TUNER the tuner's command, PYTHON the interpreter that has it.
set -euo pipefail
fail() { echo "run.sh: $1" >&2; exit 2; }
# What follows runs in FOLDER, where a relative path would be another one.
absolute() { case $1 in /*) echo "$1" ;; */*) echo "$PWD/$1" ;; *) echo "$1" ;; esac; }
studies="one-gpu-eagle3, one-gpu-standalone, two-gpus-nccl, one-gpu-depths, one-gpu-trees or two-gpus-depths"
[ $# = 2 ] || fail "usage: run.sh STUDY FOLDER, with STUDY one of $studies"
study=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
python=$(absolute "${PYTHON:-$here/../../.venv/bin/python}")
tuner=("$python" -m tuner)
[ -z "${TUNER:-}" ] || read -ra tuner <<< "$TUNER"
tuner[0]=$(absolute "${tuner[0]}")
case $study in
  one-gpu-eagle3 | one-gpu-standalone | two-gpus-nccl) ;;
  one-gpu-depths | one-gpu-trees | two-gpus-depths) ;;
  *) fail "no study '$study': name $studies" ;;
esac
[ -n "$(command -v "$python")" ] ||
  fail "no $python: run 'make install', or name in PYTHON an interpreter that has the tuner"
[ -n "$(command -v "${tuner[0]}")" ] || fail "TUNER=${tuner[*]} cannot be run"
[ -n "${TUNER_SGLANG_PYTHON:-}" ] ||
  fail "name the interpreter that has SGLang: export TUNER_SGLANG_PYTHON=/path/to/bin/python"
[ -n "$(command -v "$TUNER_SGLANG_PYTHON")" ] ||
  fail "TUNER_SGLANG_PYTHON=$TUNER_SGLANG_PYTHON cannot be run"
TUNER_SGLANG_PYTHON=$(absolute "$TUNER_SGLANG_PYTHON")
export TUNER_SGLANG_PYTHON
mkdir -p "$folder"

variants=("$study")
if [ "$study" = one-gpu-standalone ]; then
  variants=(one-gpu-standalone-01 one-gpu-standalone-02 one-gpu-standalone-05)
  [ -f "$folder/models/small-05/model.safetensors" ] ||
    "$TUNER_SGLANG_PYTHON" "$here/models.py" "$folder" --weights
fi
[ -f "$folder/prompts.jsonl" ] || "$python" "$here/models.py" "$folder"

cd "$folder"
storage=sqlite:///tuner.db
case $study in
  *-depths | *-trees)
    cp "$here/$study.yaml" "$study.yaml"
    exec "$python" "$here/../hot_switch.py" --study "./$study.yaml" --storage "$storage" \
      --tuner "$(printf '%q ' "${tuner[@]}")" --order "${ORDER:-switched,alone}" --output "$study.md"
    ;;
esac
for variant in "${variants[@]}"; do
  noise=${variant#one-gpu-standalone-}
  sed -e "s/one-gpu-standalone-02/$variant/" -e "s/small-02/small-$noise/" \
    "$here/$study.yaml" > "$variant.yaml"
  begun=sweep
  if "${tuner[@]}" show --study "$variant" --storage "$storage" > /dev/null 2>&1; then
    begun=resume
  fi
  "${tuner[@]}" "$begun" --study "./$variant.yaml" --storage "$storage"
  "${tuner[@]}" export --study "$variant" --storage "$storage" --output "$variant.sh" --force
  "${tuner[@]}" export --study "$variant" --storage "$storage" --diff
done
"$python" "$here/../table.py" --storage "$storage" --study "${variants[@]}" --output "$study.csv"
