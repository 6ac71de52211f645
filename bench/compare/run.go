package main

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"time"

	"github.com/kvd-db/kvd/bench/disk"
	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// outcome is the result of a run of operations on one store.
type outcome struct {
	Summary    workload.Summary `json:"summary"`
	Seconds    []second         `json:"seconds"`   // whole ones
	UserBytes  int64            `json:"userBytes"` // keys and values of puts and deletes
	Written    writtenBytes     `json:"written"`   // by the process, including the sync
	Read       readBytes        `json:"read"`
	DiskBytes  int64            `json:"diskBytes"`  // of the store, at the end
	SyncTime   time.Duration    `json:"syncTime"`   // until all of it was on the disk, after the run
	SettleTime time.Duration    `json:"settleTime"` // of a load, likewise
	Memory     memoryUse        `json:"memory"`
}

// second is one second of a run.
type second struct {
	OpsPerSecond float64 `json:"opsPerSecond"`
	// Merging is the share of the second in which at least one compaction ran; null if
	// the store does not report it.
	Merging *float64 `json:"merging,omitempty"`
	// If a pulse was taken, While counts what was done during compactions, and Quiet
	// what was done without. Together they are less than the second.
	While stretch `json:"while,omitzero"`
	Quiet stretch `json:"quiet,omitzero"`
}

// runner runs the operations of a worker.
type runner struct {
	store peers.Store
	dir   string
	tell  *json.Encoder
	pulse bool // take a pulse
}

// perform runs operations and checks every answer.
func (r runner) perform(ctx context.Context, cfg workload.Config) (result, error) {
	target, p := workload.Target(r.store), (*pulse)(nil)
	if r.pulse {
		p = takePulse(target)
		defer p.end()
		target = p
	}
	res, err := r.measure(cfg.Warmup, cfg.Duration, p, func(w watch) (*workload.Summary, error) {
		return workload.Run(ctx, target, cfg, workload.Observer{
			Second: w.second, Measured: w.measured, Interval: func(line workload.Line) error { return w.interval(line.OpsPerSecond) },
		})
	})
	if err == nil && res.Run.Summary.Interrupted {
		err = ctx.Err()
	}
	if err != nil {
		return result{}, err
	}
	res.Run.UserBytes = userBytes(&res.Run.Summary)
	return res, nil
}

// performTrial runs a trial and checks every answer.
func (r runner) performTrial(ctx context.Context, b *workload.Bench, t *trial) (result, error) {
	_, lossy := r.store.(peers.LossyTransactor)
	res, err := r.measure(t.Span.Warmup, t.Span.Duration, nil, func(w watch) (*workload.Summary, error) {
		return t.run(ctx, b, lossy, loadgen.Observer{
			Second: w.second, Measured: w.measured, Interval: func(s loadgen.Sample) error { return w.interval(s.OpsPerSecond) },
		})
	})
	if err == nil && res.Run.Summary.Interrupted {
		err = ctx.Err()
	}
	if err != nil {
		return result{}, err
	}
	res.Run.UserBytes = int64(res.Run.Summary.Put.Count) * int64(t.Shape.Writes) * int64(workload.RecordKeyBytes+b.ValueBytes)
	return res, nil
}

// performScanMix runs the mix with scans and checks every answer.
func (r runner) performScanMix(ctx context.Context, d dataset, m *scanMix) (result, error) {
	res, err := r.measure(m.Span.Warmup, m.Span.Duration, nil, func(w watch) (*workload.Summary, error) {
		return m.run(ctx, r.store, d, loadgen.Observer{
			Second: w.second, Measured: w.measured, Interval: func(s loadgen.Sample) error { return w.interval(s.OpsPerSecond) },
		})
	})
	if err == nil && res.Run.Summary.Interrupted {
		err = ctx.Err()
	}
	if err != nil {
		return result{}, err
	}
	res.Run.UserBytes = int64(res.Run.Summary.Put.Count) * int64(keyBytes+d.ValueBytes)
	return res, nil
}

// watch receives the progress of a run.
type watch struct {
	second   func(loadgen.Sample)
	measured func(begins bool)
	interval func(opsPerSecond float64) error
}

// measure measures a run of a duration after a warm-up, with a pulse or none, all but the
// user's bytes.
func (r runner) measure(warmup, duration time.Duration, p *pulse, run func(watch) (*workload.Summary, error)) (result, error) {
	debug.FreeOSMemory() // do not charge this task for the garbage of others
	var o outcome
	var ends []time.Time // of o.Seconds
	memory, cpu, written, read, begin := memoryNow(), process.OwnCPU(), writtenNow(), readNow(r.store), time.Now()
	summary, err := run(watch{
		second: func(s loadgen.Sample) {
			o.Seconds, ends = append(o.Seconds, second{OpsPerSecond: s.OpsPerSecond}), append(ends, time.Now())
		},
		measured: func(begins bool) {
			switch {
			case !begins:
				o.Read = readNow(r.store).since(read)
			case warmup > 0: // without one the operations have begun
				read = readNow(r.store)
			}
		},
		interval: func(opsPerSecond float64) error {
			if err := disk.Enough(r.dir, 0); err != nil {
				return err
			}
			return r.tell.Encode(message{Second: opsPerSecond})
		},
	})
	if err != nil {
		return result{}, err
	}
	elapsed, used := time.Since(begin), process.OwnCPU()-cpu
	o.Summary, o.Memory = *summary, memory.watched()
	if n := len(o.Seconds); n > int(duration/time.Second) {
		o.Seconds = o.Seconds[:n-1] // the rest of a second at the end
	}
	if m, ok := r.store.(peers.Merger); ok {
		merges := disjoint(m.Merges())
		noteMerging(o.Seconds, ends, merges)
		if p != nil {
			noteStretches(o.Seconds, ends, p.end(), merges)
		}
	}
	begin = time.Now()
	if err := disk.Sync(r.dir); err != nil {
		return result{}, err
	}
	o.SyncTime = time.Since(begin)
	o.Written = writtenNow().since(written)
	if o.DiskBytes, err = disk.Used(r.dir); err != nil {
		return result{}, err
	}
	return result{Elapsed: elapsed, CPU: used, Memory: o.Memory, Run: &o}, nil
}

func userBytes(s *workload.Summary) int64 {
	return int64(s.Put.Count)*int64(keyBytes+s.Workload.ValueBytes) + int64(s.Delete.Count)*keyBytes
}
