#!/usr/bin/env bash
# Measures gets beside the two long tasks of a running server: a backup and a scrub, at their
# default rates. A server with a million values of 1 KiB, the client and the task share the
# machine. Gets come in an open loop at 70 % of what a closed loop reached, in turns: calm, beside
# a backup, calm, beside a scrub. Prints the 99th percentile of each turn, and fails if the median
# over the turns, of a task beside the calm turn before it, exceeds MAINTENANCE_P99 times calm.
# Takes five minutes; the figures are significant only on an idle machine.
#
#   MAINTENANCE_TURNS=5 MAINTENANCE_P99=1.3 MAINTENANCE_KEYS=1000000 MAINTENANCE_SECONDS=8 scripts/maintenance.sh
set -euo pipefail
cd "$(dirname "$0")/.."

turns=${MAINTENANCE_TURNS:-5}
bound=${MAINTENANCE_P99:-1.3}
keys=${MAINTENANCE_KEYS:-1000000}
seconds=${MAINTENANCE_SECONDS:-8}

CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
work=$(mktemp -d "${MAINTENANCE_DIR:-${TMPDIR:-/tmp}}/kvd-maintenance-XXXXXX")
server=
task=
trap 'for p in $task $server; do kill "$p" 2>/dev/null || true; done; wait; rm -rf "$work"' EXIT

bin/kvd serve --data "$work/data" --listen 127.0.0.1:0 --admin "unix:$work/a" --scrub-interval 0 >"$work/ready" 2>"$work/log" &
server=$!
until grep -q READY "$work/ready"; do
	kill -0 $server 2>/dev/null || { cat "$work/log" >&2; exit 1; }
	sleep 0.1
done
address=$(sed -n 's/^READY listen=\([^ ]*\) .*/\1/p' "$work/ready")

# gets FLAG...: a run of kvbench, whose summary is the last line of its file.
gets() {
	rm -f "$work/out"
	bin/kvbench run --addr "$address" --mix READ_ONLY --find-rate 1 --keys "$keys" --threads 256 --warmup 2s \
		--duration "${seconds}s" --out "$work/out" "$@" >"$work/bench" 2>&1 || { cat "$work/bench" >&2; exit 1; }
	tail -1 "$work/out"
}

field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

# turn NAME: the 99th percentile of gets in milliseconds.
turn() {
	local p99
	p99=$(gets --reuse --rate "$rate" | sed 's/.*"get":{"count"//; s/"foundRate".*//' | field p99)
	awk -v ns="$p99" 'BEGIN { printf "%.2f", ns / 1e6 }'
}

# beside COMMAND...: turn, while a command runs from its beginning to its end.
beside() {
	"$@" >"$work/task" 2>&1 &
	task=$!
	local p99
	p99=$(turn)
	kill -0 $task 2>/dev/null || { echo "maintenance: $* ended before the turn did: $(cat "$work/task")" >&2; exit 1; }
	kill $task
	wait $task || true # it was killed
	task=
	echo "$p99"
}

echo "maintenance: $keys values of 1 KiB are loaded"
closed=$(gets --preload "$keys" | field opsPerSecond)
rate=$(awk -v r="$closed" 'BEGIN { printf "%d", r * 0.7 }')
echo "maintenance: a closed loop of 256 reaches ${closed%%.*} gets a second; turns of $seconds s have $rate"
echo "turn  calm ms  backup ms  ratio  calm ms  scrub ms  ratio"
for i in $(seq "$turns"); do
	calm1=$(turn)
	backup=$(beside bin/kvd backup "$work/backup$i" --addr "$address")
	calm2=$(turn)
	scrub=$(beside bin/kvd scrub --addr "$address")
	rm -rf "$work/backup$i"
	awk -v i="$i" -v a="$calm1" -v b="$backup" -v c="$calm2" -v d="$scrub" \
		'BEGIN { printf "%4d  %7.2f  %9.2f  %5.2f  %7.2f  %8.2f  %5.2f\n", i, a, b, b / a, c, d, d / c }' | tee -a "$work/turns"
done
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
backup=$(awk '{ print $4 }' "$work/turns" | median)
scrub=$(awk '{ print $7 }' "$work/turns" | median)
echo "maintenance: median of the ratios to calm: backup $backup, scrub $scrub; allowed $bound"
awk -v b="$backup" -v s="$scrub" -v m="$bound" 'BEGIN { exit !(b <= m && s <= m) }'
