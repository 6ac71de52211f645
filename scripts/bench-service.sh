#!/usr/bin/env bash
# Compares kvd as a service with Redis, etcd and memcached, in about twelve minutes, and
# prints which goals are reached. LONG=1 takes longer. Servers that are not installed
# are skipped; the Debian packages are redis-server, etcd-server and memcached, and
# INSTALL=1 installs those that are missing. Flags are passed on: see bench/README.md.
#
#   [LONG=1] [INSTALL=1] [BENCH_DIR=DIR] scripts/bench-service.sh [--rows get,mix] [--out FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A packages=([redis-server]=redis-server [etcd]=etcd-server [memcached]=memcached)
missing=()
for binary in "${!packages[@]}"; do
	command -v "$binary" >/dev/null || missing+=("${packages[$binary]}")
done
if [[ ${#missing[@]} -gt 0 && -n ${INSTALL:-} ]]; then
	apt-get install -y --no-install-recommends "${missing[@]}" >&2 || echo "bench-service: could not install ${missing[*]}" >&2
elif [[ ${#missing[@]} -gt 0 ]]; then
	echo "bench-service: NOT INSTALLED: ${missing[*]}; their rows are SKIPPED (INSTALL=1 fetches them)" >&2
fi

commit=$(git rev-parse HEAD)$(git diff --quiet HEAD || echo +dirty)
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kvd
(cd bench && go build -trimpath -ldflags "-X main.commit=$commit" -o ../bin/service ./service)
exec bin/service --kvd bin/kvd --dir "${BENCH_DIR:-.}" ${LONG:+--long} "$@"
