package main

import (
	"fmt"
	"time"
)

// Parts of the report.
const (
	partEmbedded = "embedded"
	partService  = "service"
)

// step is one run of the program of a part: workloads that all contestants run in turns
// and with the same durability.
type step struct {
	part string
	name string // of its file
	args []string
	// durability says when writes are acknowledged.
	durability string
	// differs says so of the contestants for which that is not exact.
	differs map[string]string
}

// What writes wait for.
const (
	waitDisk    = "the disk"
	waitKernel  = "the kernel"
	waitProcess = "its own process" // which may still hold them
	waitNothing = "-"               // there are none
)

// The contestants of each part, and ours in both.
const (
	ours     = "kvd" // the default store
	engines  = ours + ",pebble,pebble-4k,badger,bbolt,goleveldb"
	services = ours + ",rueidis,rueidis-100us,redis-benchmark,etcd"
)

// What a run at full scale has.
const (
	fullKeys     = 5_000_000 // of embedded stores
	fullPutSlot  = 5 * time.Second
	fullMixSlot  = time.Minute
	fullGetSlot  = 5 * time.Second
	fullService  = 10 * time.Second
	serviceKeys  = 1_000_000
	leastKeys    = 10_000
	leastSlot    = 300 * time.Millisecond
	leastService = 300 * time.Millisecond
	fullMemory   = 1024 // MiB of each embedded store
	leastMemory  = 256
)

// plan returns the steps of a run, which is short if scale is small.
func plan(scale float64, rounds int) []step {
	slot := func(full, least time.Duration) string {
		return max(time.Duration(scale*float64(full)).Round(10*time.Millisecond), least).String()
	}
	keys := func(full int) string { return fmt.Sprint(max(int(scale*float64(full)), leastKeys)) }
	embedded := func(command string, full time.Duration, more ...string) []string {
		args := []string{command, "--engines", engines, "--rounds", fmt.Sprint(rounds), "--keys", keys(fullKeys), "--slot", slot(full, leastSlot),
			"--memory", fmt.Sprint(min(max(int(scale*fullMemory), leastMemory), fullMemory))}
		return append(args, more...)
	}
	service := func(rows string) []string {
		return []string{"--rows", rows, "--contestants", services, "--rounds", fmt.Sprint(rounds), "--keys", keys(serviceKeys), "--slot", slot(fullService, leastService)}
	}
	return []step{
		{part: partEmbedded, name: "put", args: embedded("put", fullPutSlot, "--writers", "1,16,64", "--value-size", "128"), durability: waitDisk},
		{part: partEmbedded, name: "mix", args: embedded("mix", fullMixSlot, "--threads", "4"), durability: waitKernel,
			differs: map[string]string{"pebble": waitProcess, "pebble-4k": waitProcess}},
		{part: partEmbedded, name: "get", args: embedded("get", fullGetSlot), durability: waitNothing},
		{part: partService, name: "get", args: service("get"), durability: waitNothing},
		{part: partService, name: "sync", args: service("mix,set,etcd"), durability: waitDisk},
		{part: partService, name: "buffered", args: service("buffered"), durability: waitKernel},
	}
}

// file is the name of the step's files, without an ending.
func (s *step) file() string { return s.part + "-" + s.name }

// durabilityOf returns what the writes of a contestant wait for.
func (s *step) durabilityOf(contestant string) string {
	if text, ok := s.differs[contestant]; ok {
		return text
	}
	return s.durability
}
