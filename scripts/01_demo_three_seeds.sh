#!/usr/bin/env bash
# The demonstration for three seeds, side by side: the table and the picture of the README. About 25 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
for seed in 0 1 2; do
  .venv/bin/tokagnostic demo --seed "$seed" --output "artifacts/demo-seed-$seed"
done
.venv/bin/tokagnostic compare --reports artifacts/demo-seed-{0,1,2} --figure docs/controls.png
