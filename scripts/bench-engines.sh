#!/usr/bin/env bash
# Compares kvd's engine with other embedded stores, in under ten minutes, and prints
# which goals are reached. LONG=1 takes hours. Flags are passed on, and so is the name
# of a single comparison: see bench/README.md.
#
#   [LONG=1] [BENCH_DIR=DIR] scripts/bench-engines.sh [all|scan|put|mix|get|load|txn|scanmix|cold|threads|long|scale] [--out FILE]
set -euo pipefail
cd "$(dirname "$0")/../bench"

dir=$(realpath "${BENCH_DIR:-..}")
tags=()
if [[ -e /usr/include/rocksdb/c.h && $(go env CGO_ENABLED) == 1 ]]; then
  tags=(-tags rocksdb)
else
  echo "RocksDB DOES NOT TAKE PART: it needs librocksdb-dev and a C compiler" >&2
fi
commit=$(git rev-parse HEAD)$(git diff --quiet HEAD || echo +dirty)
go build -trimpath "${tags[@]}" -ldflags "-X main.commit=$commit" -o ../bin/compare ./compare

command=all
if [[ $# -gt 0 && $1 != -* ]]; then
  command=$1
  shift
fi
if [[ $command == all && -n ${LONG:-} ]]; then
  set -- --long "$@"
fi
exec ../bin/compare "$command" --dir "$dir" "$@"
