#!/usr/bin/env bash
# kvd's engine against other embedded stores: scans. Some three minutes with the
# defaults. Flags go through: see bench/README.md.
#
#   BENCH_DIR=DIR scripts/bench-engines.sh [--keys 1000000] [--value-size 100] [--rounds 5]
set -euo pipefail
cd "$(dirname "$0")/../bench"

dir=$(realpath "${BENCH_DIR:-..}")
go build -trimpath -o ../bin/compare ./compare
exec ../bin/compare scan --dir "$dir" "$@"
