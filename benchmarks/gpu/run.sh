#!/usr/bin/env bash
# Runs one of the GPU studies with the real tuner, and writes its table.
#
#   benchmarks/gpu/run.sh one-gpu-eagle3|one-gpu-standalone|two-gpus-nccl FOLDER
#
# FOLDER is made, and holds everything: models, database, logs, exports, tables. The same command
# again goes on where the last one stopped (Ctrl-C, a time limit). TUNER_SGLANG_PYTHON names the
# interpreter that has SGLang; TUNER the tuner's command, PYTHON the interpreter that has it.
set -euo pipefail
study=${1:?usage: run.sh STUDY FOLDER} folder=${2:?usage: run.sh STUDY FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../../.venv/bin/python}
read -ra tuner <<< "${TUNER:-$python -m tuner}"
: "${TUNER_SGLANG_PYTHON:?name the interpreter that has SGLang}"
[ -f "$here/$study.yaml" ] || { echo "no study $here/$study.yaml" >&2; exit 2; }
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
