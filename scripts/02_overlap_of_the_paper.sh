#!/usr/bin/env bash
# Table 2 and Figure 2 of arXiv 2607.29065: Mistral's and SmolLM2's n-grams among those of cl100k_base, on WikiText-2. Under a minute.
# The tokenizers and the text come from the hub unless the variables name files.
set -euo pipefail
mistral=${MISTRAL:-mistral:v1}
smollm2=${SMOLLM2:-smollm2}
cl100k=${CL100K:-cl100k}
read -ra data <<<"${WIKITEXT:-hf:Salesforce/wikitext:wikitext-2-v1:validation hf:Salesforce/wikitext:wikitext-2-v1:test}"
out=${OUT:-docs}
tokagnostic=${TOKAGNOSTIC:-.venv/bin/tokagnostic}
overlap() { "$tokagnostic" overlap --reference "$cl100k" --data "${data[@]}" --documents article --max-order 7 "$@"; }
overlap --target "$mistral" "$smollm2" --output "$out/overlap.json" --csv "$out/overlap.csv"
overlap --target "$mistral" --figure "$out/overlap_mistral.png" >/dev/null
overlap --target "$smollm2" --figure "$out/overlap_smollm2.png" >/dev/null
