#!/usr/bin/env bash
# Runs the four mixes of the LSM-tree articles, embedded and over gRPC.
#
#   DURATION=60s THREADS=16 PARTITIONS=4 KEYS=10000000 MEMORY=1073741824 OUT=DIR scripts/bench.sh
set -euo pipefail
cd "$(dirname "$0")/.."

duration=${DURATION:-60s}
threads=${THREADS:-16}
partitions=${PARTITIONS:-4}
keys=${KEYS:-10000000}
memory=${MEMORY:-1GiB}
out=${OUT:-$(mktemp -d)}
work=$(mktemp -d "${BENCH_DIR:-$PWD}/.bench.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

run() { # name, further flags
	local name=$1
	shift
	./bin/kvbench run --threads "$threads" --keys "$keys" --duration "$duration" \
		--out "$out/$name.jsonl" "$@" | tee "$out/$name.txt"
}

for mix in PUT_HEAVY GET_HEAVY DELETE_HEAVY BALANCED; do
	echo "bench: $mix, embedded"
	run "$mix-embedded" --mix "$mix" --partitions "$partitions" --memory "$memory" --data "$work/embedded"
	rm -rf "$work/embedded"

	echo "bench: $mix, over gRPC"
	mkfifo "$work/ready"
	./bin/kvd serve --data "$work/server" --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
		--partitions "$partitions" --memory "$memory" --durability buffered >"$work/ready" 2>"$out/$mix-server.log" &
	server=$!
	read -r _ listen _ <"$work/ready"
	run "$mix-grpc" --mix "$mix" --addr "${listen#listen=}"
	echo "bench: the server's $(grep VmHWM "/proc/$server/status" || echo 'peak memory is not known here')"
	kill "$server"
	wait "$server"
	server=
	rm -rf "$work/server" "$work/ready"
done
echo "bench: results in $out"
