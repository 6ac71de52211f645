#!/usr/bin/env bash
# Compares kvd with Pebble, Badger, bbolt and goleveldb, embedded, and with Redis and etcd
# as a service, in one run and with one report, in a few minutes; LONG=1 takes hours.
# Servers that are not installed are skipped; the Debian packages are redis-server,
# redis-tools and etcd-server. Flags are passed on: see bench/README.md.
#
#   [LONG=1] [BENCH_DIR=DIR] scripts/bench-peers.sh [--scale 0.01] [--rounds 5] [--report DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A packages=([redis-server]=redis-server [redis-benchmark]=redis-tools [etcd]=etcd-server)
for binary in "${!packages[@]}"; do
	command -v "$binary" >/dev/null || echo "bench-peers: $binary is NOT INSTALLED; its rows are SKIPPED (apt-get install ${packages[$binary]})" >&2
done

commit=$(git rev-parse HEAD)$(git diff --quiet HEAD || echo +dirty)
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kvd
(cd bench && go build -trimpath -ldflags "-X main.commit=$commit" -o ../bin/ ./compare ./service ./overview)
scale=0.02
if [[ -n ${LONG:-} ]]; then
	scale=1
fi
exec bin/overview --dir "${BENCH_DIR:-.}" --scale "$scale" "$@"
