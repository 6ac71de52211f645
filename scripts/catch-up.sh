#!/usr/bin/env bash
# Measures how a node without data catches up, on a cluster of three nodes that shares this machine
# with its clients. The cluster is filled; when no compaction is due, clients get (85 %), put and delete
# in an open loop at a share of what a closed loop reached, in turns. (An operation of an open loop takes
# more processor time, as its batches are smaller: at a share of 0.3 calm turns kept two cores busy.)
# Node 3 is killed and replaced with node 4, whose disk is empty; later node 4 is killed and started
# again after a minute. Prints for both how long it took until the node had what the others have, how
# many bytes it was sent as messages and as files, and the 99th percentile of gets and puts, calm and
# meanwhile. Fails if a median of the turns meanwhile exceeds CATCH_UP_P99 times calm, or if the node
# that was away for a minute was sent files.
#
#   CATCH_UP_BYTES=5000000000 CATCH_UP_P99=2 CATCH_UP_AWAY=60 CATCH_UP_LOAD=0.1 CATCH_UP_SECONDS=15 CATCH_UP_DIR=. scripts/catch-up.sh
set -euo pipefail
cd "$(dirname "$0")/.."

bytes=${CATCH_UP_BYTES:-5000000000} bound=${CATCH_UP_P99:-2} away=${CATCH_UP_AWAY:-60}
share=${CATCH_UP_LOAD:-0.1} seconds=${CATCH_UP_SECONDS:-15}
keys=$((bytes / 1040)) # keys of 16 bytes, values of 1 KiB

CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
work=$(mktemp -d "${CATCH_UP_DIR:-.}/kvd-catch-up-XXXXXX")
pids=()
bench=
stop() {
	trap - EXIT
	for p in $bench "${pids[@]}"; do kill -9 "$p" 2>/dev/null || true; done
	wait
	rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM

base=$((20000 + RANDOM % 8000))
members=1=127.0.0.1:$((base + 101)),2=127.0.0.1:$((base + 102)),3=127.0.0.1:$((base + 103))
address=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2))

# serve N starts a node, of which nothing runs.
serve() {
	bin/kvd serve --cluster --data "$work/node$1" --listen "127.0.0.1:$((base + $1))" --admin "127.0.0.1:$((base + 200 + $1))" \
		--scrub-interval 0 >"$work/ready$1" 2>>"$work/log$1" &
	pids[$1]=$!
	disown
}

# status prints the table of the cluster, or nothing.
status() { bin/kvd cluster status --addr "$address" 2>/dev/null || true; }

# until_row N PATTERN waits for a row of node N in the table.
until_row() {
	until status | grep -qE "^ *$1 .*$2"; do
		kill -0 "${pids[$1]}" 2>/dev/null || { tail -5 "$work/log$1" >&2; exit 1; }
		sleep 0.2
	done
}

# metrics N: of node N.
metrics() { exec 3<>"/dev/tcp/127.0.0.1/$((base + 200 + $1))"; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3; exec 3<&-; }

# total METRIC NODE...: the sum of it over these nodes; METRIC is a pattern for the name and the labels.
total() {
	local n metric=$1
	shift
	for n; do metrics "$n" | grep -E "^$metric " || true; done | awk '{ s += $NF } END { printf "%.0f", s }'
}

# sent N KIND: bytes of messages or files that nodes 1 and 2 have sent to node N.
sent() { total "kvd_cluster_peer_sent_$2bytes_total\{node=\"$1\"\}" 1 2; }

# settle waits until compactions have had nothing to do for five seconds.
settle() {
	local calm=0
	echo "catch-up: compactions settle"
	metrics 1 | grep '^kvd_compaction_debt_bytes' >/dev/null || { echo "catch-up: no metric says what compactions have to do" >&2; exit 1; }
	while ((calm < 5)); do
		sleep 1
		[[ $(total 'kvd_compaction_debt_bytes.*' 1 2 3) == 0 ]] && calm=$((calm + 1)) || calm=0
	done
}

# run FLAG...: a run of kvbench, whose summary is the last line of $work/out.
run() {
	rm -f "$work/out"
	bin/kvbench run --addr "$address" --mix GET_HEAVY --find-rate 1 --keys "$keys" --threads 256 --out "$work/out" "$@" >"$work/bench" 2>&1 ||
		{ tail -5 "$work/bench" >&2; exit 1; }
}

# p99 KIND: of gets or puts of the run before, in milliseconds.
p99() { tail -1 "$work/out" | sed "s/.*\"$1\":{\"count\"//" | sed 's/"p999":.*//; s/.*"p99"://; s/,.*//' | awk '{ printf "%.2f", $1 / 1e6 }'; }

# turn WHERE: a run in the open loop; its latencies go to the file of that name.
turn() {
	run --reuse --rate "$rate" --duration "${seconds}s"
	echo "$(p99 get) $(p99 put)" >>"$work/$1"
	printf '%-10s get %8s ms  put %8s ms\n' "$1" "$(p99 get)" "$(p99 put)"
}

# turns_until WHERE COMMAND...: turns until a command that waits has ended; prints how long it took.
turns_until() {
	local where=$1 begin=$EPOCHREALTIME waiting
	shift
	{ "$@" && echo "$EPOCHREALTIME" >"$work/ended"; } &
	waiting=$!
	while kill -0 $waiting 2>/dev/null; do turn "$where"; done
	wait $waiting
	awk -v a="$begin" -v b="$(cat "$work/ended")" 'BEGIN { printf "%.1f s", b - a }' >"$work/took"
}

# replaced waits until node 4 votes in the place of node 3.
replaced() {
	until_row 4 ' voter '
	while status | grep -q '^3 '; do sleep 0.2; done
}

# ratio WHERE COLUMN: the median of turns in times of that of calm ones.
ratio() {
	local where
	for where in calm "$1"; do
		awk -v c="$2" '{ print $c }' "$work/$where" | sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
	done | awk '{ v[NR] = $1 } END { printf "%.2f", v[2] / v[1] }'
}

# summary WHERE WHAT MESSAGES FILES: of the turns, and what had been sent to node 4 before them.
summary() {
	local messages files gets puts
	messages=$(awk -v a="$(sent 4 '')" -v b="$3" 'BEGIN { printf "%.1f", (a - b) / 1e6 }')
	files=$(awk -v a="$(sent 4 file_)" -v b="$4" 'BEGIN { printf "%.1f", (a - b) / 1e6 }')
	gets=$(ratio "$1" 1) puts=$(ratio "$1" 2)
	echo "catch-up: $2: $(cat "$work/took"); $messages MB of messages, $files MB of files; p99 in times of calm: gets $gets, puts $puts; allowed $bound"
	awk -v g="$gets" -v p="$puts" -v b="$bound" 'BEGIN { exit !(g <= b && p <= b) }' || failed=1
}

failed=0
for n in 1 2 3; do
	bin/kvd cluster init --data "$work/node$n" --node "$n" --cluster 00000000000ca7c4 --members "$members" --partitions 4 >/dev/null
	serve "$n"
done
for n in 1 2 3; do until_row "$n" ' now '; done

echo "catch-up: $keys values of 1 KiB are loaded"
run --preload "$keys" --duration 1s
settle
run --reuse --duration "${seconds}s"
rate=$(tail -1 "$work/out" | sed 's/.*"ops":[0-9]*,"opsPerSecond":\([0-9]*\).*/\1/' | awk -v s="$share" '{ printf "%d", $1 * s }')
echo "catch-up: a closed loop of 256 does $(awk -v r="$rate" -v s="$share" 'BEGIN { printf "%d", r / s }') operations a second; turns of $seconds s have $rate"
settle
for _ in 1 2 3 4 5; do turn calm; done

kill -9 "${pids[3]}"
bin/kvd cluster join --data "$work/node4" --peer "127.0.0.1:$((base + 104))" --replace 3 --addr "$address" >"$work/joined"
serve 4
turns_until "no data" replaced
summary "no data" "node 4 began without data, and has the place of node 3" 0 0

kill -9 "${pids[4]}"
turns_until away sleep "$away"
messages=$(sent 4 '') files=$(sent 4 file_)
serve 4
turns_until back until_row 4 ' voter +[0-9]+ +[0-9]{1,3} +now +ok '
summary back "node 4 was away for $away s" "$messages" "$files"
if [[ $(sent 4 file_) != "$files" ]]; then
	echo "catch-up: the node that was away was sent files" >&2
	failed=1
fi
exit "$failed"
