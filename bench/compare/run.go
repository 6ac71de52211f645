package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/workload"
)

// outcome is what came of a run of operations on one store.
type outcome struct {
	Summary    workload.Summary `json:"summary"`
	Seconds    []second         `json:"seconds"`    // whole ones
	UserBytes  int64            `json:"userBytes"`  // keys and values of what was put or deleted
	Written    writtenBytes     `json:"written"`    // by the process, the sync included
	DiskBytes  int64            `json:"diskBytes"`  // of the store, at the end
	SyncTime   time.Duration    `json:"syncTime"`   // until all of it was on the disk, after the run
	SettleTime time.Duration    `json:"settleTime"` // of a load, likewise
	Memory     memoryUse        `json:"memory"`
}

// second is one second of a run.
type second struct {
	OpsPerSecond float64 `json:"opsPerSecond"`
	// Merging is the share of the second in which at least one compaction went on;
	// null if the store does not tell.
	Merging *float64 `json:"merging,omitempty"`
}

// runner is where a worker runs operations.
type runner struct {
	store peers.Store
	dir   string
	tell  *json.Encoder
}

// leastFreeBytes is how much room a run leaves on the disk: enough for the other
// users of a machine, and for the seconds that pass before it ends.
const leastFreeBytes = 6 << 30

// perform runs operations and checks every answer.
func (r runner) perform(ctx context.Context, cfg workload.Config) (result, error) {
	debug.FreeOSMemory() // garbage of other tasks is not this one's
	var o outcome
	var ends []time.Time // of o.Seconds
	memory, cpu, written, begin := memoryNow(), cpuTime(), writtenNow(), time.Now()
	summary, err := workload.Run(ctx, r.store, cfg, workload.Observer{
		Second: func(s workload.Second) {
			o.Seconds, ends = append(o.Seconds, second{OpsPerSecond: s.OpsPerSecond}), append(ends, time.Now())
		},
		Interval: func(line workload.Line) error {
			if err := enoughDisk(r.dir); err != nil {
				return err
			}
			return r.tell.Encode(message{Second: line.OpsPerSecond})
		},
	})
	if err != nil {
		return result{}, err
	}
	if summary.Interrupted {
		return result{}, ctx.Err()
	}
	elapsed, used := time.Since(begin), cpuTime()-cpu
	o.Summary, o.Memory = *summary, memory.watched()
	if n := len(o.Seconds); n > int(cfg.Duration/time.Second) {
		o.Seconds = o.Seconds[:n-1] // what was left at the end
	}
	if m, ok := r.store.(peers.Merger); ok {
		noteMerging(o.Seconds, ends, m.Merges())
	}
	o.UserBytes = userBytes(summary)
	begin = time.Now()
	if err := syncFiles(r.dir); err != nil {
		return result{}, err
	}
	o.SyncTime = time.Since(begin)
	o.Written = writtenNow().since(written)
	if o.DiskBytes, err = diskBytes(r.dir); err != nil {
		return result{}, err
	}
	return result{Elapsed: elapsed, CPU: used, Memory: o.Memory, Run: &o}, nil
}

// noteMerging fills in, for seconds that ended at the given moments, what share of
// each the store merged in.
func noteMerging(seconds []second, ends []time.Time, merges []peers.Span) {
	for i := range seconds {
		share := covered(peers.Span{Begin: ends[i].Add(-time.Second), End: ends[i]}, merges)
		seconds[i].Merging = &share
	}
}

// covered returns what share of a span lies in any of others.
func covered(s peers.Span, others []peers.Span) float64 {
	others = slices.SortedFunc(slices.Values(others), func(a, b peers.Span) int { return a.Begin.Compare(b.Begin) })
	var total time.Duration
	at := s.Begin // all before is accounted for
	for _, o := range others {
		if o.Begin.Before(at) {
			o.Begin = at
		}
		if o.End.After(s.End) {
			o.End = s.End
		}
		if o.End.After(o.Begin) {
			total += o.End.Sub(o.Begin)
			at = o.End
		}
	}
	return total.Seconds() / s.End.Sub(s.Begin).Seconds()
}

func enoughDisk(dir string) error {
	free, err := freeBytes(dir)
	if err == nil && free < leastFreeBytes {
		err = fmt.Errorf("%d MiB free on the disk of %s, want at least %d", free>>20, dir, leastFreeBytes>>20)
	}
	return err
}

func userBytes(s *workload.Summary) int64 {
	return int64(s.Put.Count)*int64(keyBytes+s.Workload.ValueBytes) + int64(s.Delete.Count)*keyBytes
}
