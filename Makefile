# Everything here is a script in scripts/ or one Go command; nothing needs more
# than Go and make, unless a target says so.

.PHONY: run build cluster test repeat-tests check fuzz crash memory maintenance cgroup space freeze fill serializable nemesis catch-up bench bench-engines bench-service bench-cluster bench-postgres bench-peers release proto clean

# Binaries are static and the same on every machine.
GOFLAGS_BUILD := -trimpath -buildvcs=auto

run: build ## build and serve on ./kvd-data; stop with Ctrl-C
	./bin/kvd serve

build: ## bin/kvd and bin/kvbench
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o bin/ ./cmd/...

cluster: build ## three nodes on this machine, and what each says of the cluster; stop with Ctrl-C
	./scripts/cluster.sh

test: ## every test, under the race detector where a C compiler is present
	./scripts/test.sh

repeat-tests: ## make test twenty times on fresh clones, several at once, some beside busy loops; finds tests that fail by chance
	./scripts/repeat-tests.sh

check: ## what a change must pass: format, vet, staticcheck, generated code, tests, planted bugs
	./scripts/check.sh

fuzz: ## every fuzz target for FUZZTIME (default 20s)
	./scripts/fuzz.sh

crash: ## crash images and kill -9 cycles, with their counts
	./scripts/crash.sh

space: ## what directories of idle stores take after deletes, expiry, overwrites and snapshots
	./scripts/space.sh

freeze: ## the server on a file system that is frozen under it; needs root
	./scripts/freeze.sh

memory: ## peak memory and honest callers' latency beside hostile clients, at three budgets
	./scripts/memory.sh

maintenance: ## the latency of gets beside a backup and a scrub of the running server
	./scripts/maintenance.sh

cgroup: ## the server with 2 GiB of data in a control group of 256 MiB, under load; needs root
	./scripts/cgroup.sh

fill: ## a small file system below the server is filled again and again, with counts; needs root
	KVD_FILL_EVERY=1 go test -timeout 30m -run TestAnotherProcessFillsTheDisk -v ./internal/engine
	./scripts/fill.sh

serializable: ## a million transactions against a server that is killed, and their replay
	./scripts/serializable.sh

bench: build ## the canonical benchmark, one minute a mix
	./scripts/bench.sh

bench-engines: ## the engine and other embedded stores, in turns, and which goals are reached; LONG=1 takes hours
	./scripts/bench-engines.sh

bench-service: ## kvd as a service beside Redis, etcd and memcached, and which goals are reached; LONG=1 takes longer
	./scripts/bench-service.sh

bench-cluster: ## three kvd nodes beside three of etcd and one kvd node, and which goals are reached
	./scripts/bench-service.sh --rows cluster

nemesis: ## three or five real nodes that are killed, paused, cut off and replaced under load, for NEMESIS (default 10m)
	./scripts/nemesis.sh

catch-up: ## how a node without data catches up: time, bytes, and the latency of the clients meanwhile
	./scripts/catch-up.sh

bench-postgres: ## batched reads of PostgreSQL, and the same reads of kvd; LONG=1 has the full table
	./scripts/bench-postgres.sh

bench-peers: ## kvd beside embedded stores, Redis and etcd, in one report; LONG=1 takes hours
	./scripts/bench-peers.sh

release: ## binaries of VERSION for each platform in ./bin/release, built twice and compared
	./scripts/release.sh

proto: ## regenerate pkg/kvdpb; needs protoc
	./scripts/proto.sh

clean:
	rm -rf bin
