#!/usr/bin/env bash
# One small memory stored in every row format, whole and as its hot rows: the tables of docs/export.md. A few minutes per seed.
# Arguments: seeds, by default 0 1 2. A second call goes on where the first was stopped.
set -euo pipefail
seeds=("$@")
[ $# -gt 0 ] || seeds=(0 1 2)
held_out=${HELD_OUT:-0 0.02} seen=${SEEN:-0.05 1} # shares of the English that every Python carries
steps=${STEPS:-120}
out=${OUT:-artifacts/row_formats}
tokagnostic=${TOKAGNOSTIC:-.venv/bin/tokagnostic}

# shellcheck disable=SC2086  # a part is two numbers
for seed in "${seeds[@]}"; do
  run="$out/seed-$seed/run"
  $tokagnostic pretrain --tokenizer bpe:4096 --corpus.data embedded --corpus.part $seen --output "$run" --resume \
    --memory.num-rows 65536 --memory.num-heads 4 --memory.dim 16 --memory.seed "$seed" --host.width 128 --host.num-layers 3 \
    --fit.num-steps "$steps" --fit.block-length 128 --fit.learning-rate 5e-3 --fit.seed "$seed"
  for kept in fp32 bf16 fp16 int8 fp8_e4m3 hot-50 hot-20 hot-10 hot-5; do
    name="$out/seed-$seed/$kept"
    case $kept in
      # Per cent of 4 heads of 65,536 rows.
      hot-*) choice=(--row-format int8 --hot-rows $((4 * 65536 * ${kept#hot-} / 100))) ;;
      *) choice=(--row-format "$kept") ;;
    esac
    $tokagnostic export --run "$run" --output "$name.safetensors" "${choice[@]}" --json >"$name.export.json"
    $tokagnostic eval --run "$run" --memory-file "$name.safetensors" --data embedded --part $held_out --json >"$name.eval.json"
    $tokagnostic coverage --memory "$name.safetensors" --tokenizer "$run/tokenizer" --data embedded --part $held_out --json >"$name.coverage.json"
  done
done
