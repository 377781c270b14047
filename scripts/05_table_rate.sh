#!/usr/bin/env bash
# The factor of the table's learning rate against the bits per byte of a text that was not seen: a table of docs/scaling.md. Some minutes of one core.
# A second call goes on where the first was stopped.
set -euo pipefail
factors=${FACTORS:-5 15 45} seeds=${SEEDS:-0 1} steps=${STEPS:-100} rule=${RULE:-rowwise_rmsprop}
out=${OUT:-artifacts/table_rate}/$rule
tokagnostic=${TOKAGNOSTIC:-.venv/bin/tokagnostic}
for seed in $seeds; do
  for factor in $factors; do
    $tokagnostic pretrain --tokenizer bpe:2048 --corpus.part 0.06 1 --output "$out/$factor-$seed" --resume \
      --memory.num-rows 32768 --memory.num-heads 4 --memory.dim 16 --memory.seed "$seed" --host.width 64 --host.num-layers 2 \
      --fit.num-steps "$steps" --fit.block-length 128 --fit.learning-rate 5e-3 --fit.seed "$seed" --fit.save-every 100 \
      --fit.table-optimizer "$rule" --fit.table-rate-factor "$factor"
  done
done
for seed in $seeds; do
  runs=()
  for factor in $factors; do runs+=("$out/$factor-$seed"); done
  $tokagnostic eval --run "${runs[@]}" --part 0 0.06 --output "$out/seed-$seed.json"
done
