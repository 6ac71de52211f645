package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// Restart is the experiment of the articles on JitCask and Bitcask, which read all keys
// into memory before they are ready: how long does a store take to start, after a clean
// stop and after a kill, and how much memory does a key cost?
type Restart struct {
	Keys     []uint64 // in tables
	LogBytes []int64  // of entries that are put afterwards, and only in the log when the store stops
	// Config has the sizes of keys and values, and the workers and duration of the reads
	// that follow each start.
	Config workload.Config
	// Fill makes a store with so many keys, puts so many of them again, and kills the
	// process that did. It returns the directory, also with an error unless that is "", and
	// calls told with its progress.
	Fill   func(ctx context.Context, keys, logKeys uint64, told func(loadgen.Progress)) (dir string, err error)
	Start  func(dir string) (*Started, error)
	Remove func(dir string) error
	// KeepPages leaves the files in the page cache.
	KeepPages bool
}

// Started is a store that was opened.
type Started struct {
	Store
	Records uint64 // of the log that were replayed
}

// Parameters and measures of the cells.
const (
	paramKeys = "keys"
	paramLog  = "unflushed"
	paramStop = "stop"

	stopKill  = "kill"
	stopClean = "clean"

	measureOpen      = "openNanos"
	measureFirstRead = "firstReadNanos"
	measureRecords   = "replayedRecords"
	measureLogBytes  = "logBytes"
	measureHeap      = "heapBytes"      // what the start added
	measureHeapRead  = "heapBytesReads" // with what the reads added
)

var startOperations = []string{"start"}

// stops are the ways in which a store was stopped before it starts, in the order in which
// they are measured on one store.
var stops = []string{stopKill, stopClean}

// Experiment returns the experiment, with one cell for each combination.
func (x Restart) Experiment() *Experiment {
	e := &Experiment{Name: "restart", Title: "How long does a store take to start?", Round: x.round, Together: len(stops), Lead: restartLead, Sections: restartSections}
	for _, keys := range x.Keys {
		for _, log := range x.LogBytes {
			for _, stop := range stops {
				config := x.Config
				config.Mix, config.FindRate, config.Keys = workload.PureMixes[0], 1, max(keys, x.logKeys(log))
				e.Cells = append(e.Cells, Cell{
					Params: []results.Param{
						{Name: paramKeys, Value: strconv.FormatUint(keys, 10)}, {Name: paramLog, Value: chart.Bytes(float64(log))}, {Name: paramStop, Value: stop},
					},
					Config: config,
				})
			}
		}
	}
	return e
}

// logKeys returns how many entries have so many bytes.
func (x Restart) logKeys(bytes int64) uint64 {
	entry := max(x.Config.KeyBytes, workload.KeyBytes) + x.Config.ValueBytes
	if x.Config.Sizes != nil {
		entry = max(x.Config.KeyBytes, workload.KeyBytes) + int(x.Config.Sizes.Mean())
	}
	return uint64(bytes / int64(entry))
}

// round makes a store for each number of keys and size of the log, and starts it twice: as
// it was killed, and after the clean stop that follows.
func (x Restart) round(ctx context.Context, r *Round) error {
	cell := -len(stops)
	for _, keys := range x.Keys {
		for _, log := range x.LogBytes {
			if cell += len(stops); r.Done(cell) {
				continue
			}
			r.Doing(cell)(loadgen.Progress{What: "filling"})
			if err := x.measureStarts(ctx, r, cell, keys, log); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x Restart) measureStarts(ctx context.Context, r *Round, cell int, keys uint64, log int64) (err error) {
	dir, err := x.Fill(ctx, keys, x.logKeys(log), r.Doing(cell))
	if dir != "" {
		defer func() { err = errors.Join(err, x.Remove(dir)) }()
	}
	if err != nil {
		return err
	}
	for i := range stops {
		if err := x.measureStart(ctx, r, cell+i, dir, keys); err != nil {
			return err
		}
	}
	return nil
}

// measureStart starts a store, reads from it, and stops it.
func (x Restart) measureStart(ctx context.Context, r *Round, i int, dir string, keys uint64) (err error) {
	c, cell := &r.experiment.Cells[i], r.Cell(i)
	data, logBytes, err := fileSizes(dir)
	if err != nil {
		return err
	}
	measures := map[string]float64{measureKeys: float64(keys), measureDataBytes: float64(data), measureLogBytes: float64(logBytes)}
	if !x.KeepPages {
		evicted, err := evictAll(dir)
		if err != nil {
			return err
		}
		if evicted {
			measures[results.Evicted] = 1
		}
	}
	before, told := heapBytes(), r.Doing(i)
	var store *Started
	var activity any // of the start
	run, err := r.Measure(ctx, i, startOperations, func(observe func(loadgen.Sample)) (*loadgen.Trial, error) {
		tally := loadgen.NewTally(len(startOperations), 0)
		start := &loadgen.Run{
			Clock: loadgen.NewClock(), Operations: startOperations, Observer: loadgen.Observer{Second: observe},
			Span: loadgen.Span{Workers: 1, Operations: 1, Interval: time.Second},
		}
		start.Workers = []loadgen.Worker{{Tally: tally, Step: func(ctx context.Context, intended int64) (err error) {
			began := start.Clock.Now()
			if store, err = x.Start(dir); err != nil {
				return fmt.Errorf("start: %w", err)
			}
			opened := start.Clock.Now()
			if err := workload.Check(ctx, store.Target, &c.Config, 0); err != nil {
				return err
			}
			ready := start.Clock.Now()
			tally.Record(0, began, ready, intended)
			measures[measureOpen], measures[measureFirstRead] = float64(opened-began), float64(ready-opened)
			if store.Activity != nil {
				activity = store.Activity()
			}
			return nil
		}}}
		return start.Do(ctx)
	})
	if store == nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err != nil || run == nil {
		return err
	}
	run.Measures, run.Activity = measures, activity
	measures[measureRecords] = float64(store.Records)
	measures[measureHeap] = float64(heapBytes() - before)
	config := c.Config
	config.Present, config.Seed = config.Keys, config.Seed+uint64(r.Number)
	summary, err := workload.Run(ctx, store.Target, config, workload.Observer{Second: bySecond(told, "reading", config.Duration), Measured: store.Measured})
	if summary != nil {
		cell.Workload, cell.Target = summary.Workload, store.Info
	}
	if store.Stages != nil {
		run.Stages = store.Stages()
	}
	measures[measureHeapRead] = float64(heapBytes() - before)
	return err
}

// heapBytes returns how much of the heap is in use.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves what finalizers and pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
