#!/usr/bin/env bash
# Repeats the experiment of the article on micro-batching on PostgreSQL, and reads the same
# rows from kvd, in a few minutes; LONG=1 has the full table and takes most of an hour.
# PostgreSQL is Debian's package postgresql; without it, kvd alone is measured. Flags are
# passed on: see bench/README.md.
#
#   [LONG=1] [BENCH_DIR=DIR] scripts/bench-postgres.sh [--scale 0.01] [--report DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v postgres >/dev/null && ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
	echo "bench-postgres: PostgreSQL is NOT INSTALLED; its rows are SKIPPED (apt-get install postgresql)" >&2
fi

commit=$(git rev-parse HEAD)$(git diff --quiet HEAD || echo +dirty)
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kvd
(cd bench && go build -trimpath -ldflags "-X main.commit=$commit" -o ../bin/bench-postgres ./postgres)
scale=0.1
if [[ -n ${LONG:-} ]]; then
	scale=1
fi
exec bin/bench-postgres --kvd bin/kvd --dir "${BENCH_DIR:-.}" --scale "$scale" "$@"
