package experiment

import (
	"context"
	"errors"
	"strconv"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// Reads is the experiment of the article on JitCask: how fast are reads of data that are
// larger than the cache, and how close do they come to what the disk can do? Each run of
// the store is followed by one of raw preads: as many threads read as many bytes at random
// places of the same files.
type Reads struct {
	Distributions []workload.Distribution
	Threads       []int
	Config        workload.Config // without Mix, Workers and Distribution
	Setup         Setup
	// KeepPages leaves the files in the page cache. Otherwise they are dropped from it
	// before each run, and every evictEvery during it.
	KeepPages bool
}

// Parameters and measures of the cells.
const (
	paramDistribution = "distribution"
	paramReader       = "reader"

	readerStore = "kvd"
	readerRaw   = "raw preads"

	measureFileReads = "fileReads" // calls
	measureFileBytes = "fileBytes" // that these returned
	measureDiskBytes = "diskBytes" // read from the disk, with read-ahead
	measureKeys      = "keys"
	measureDataBytes = "dataBytes" // of the files
	measureCache     = "cacheBytes"
	measureEvicted   = results.Evicted
)

var rawOperations = []string{"pread"}

// Experiment returns the experiment, with two cells for each combination.
func (x Reads) Experiment() *Experiment {
	e := &Experiment{
		Name: "reads", Title: "How fast are reads beyond the cache?",
		Round: x.round, Together: 2, Lead: readsLead, Sections: readsSections,
		Beside: func(c *results.Cell) bool { return c.Param(paramReader) == readerRaw },
	}
	for _, d := range x.Distributions {
		for _, threads := range x.Threads {
			config := x.Config
			config.Mix, config.FindRate, config.Distribution, config.Workers = workload.PureMixes[0], 1, d, threads
			for _, reader := range []string{readerStore, readerRaw} {
				e.Cells = append(e.Cells, Cell{
					Params: []results.Param{
						{Name: paramDistribution, Value: string(d)}, {Name: paramThreads, Value: strconv.Itoa(threads)}, {Name: paramReader, Value: reader},
					},
					Setup: x.Setup, Config: config,
				})
			}
		}
	}
	return e
}

// round loads a store and measures all cells on it.
func (x Reads) round(ctx context.Context, r *Round) (err error) {
	store, err := r.Options.Open(x.Setup)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := x.load(ctx, r, &store); err != nil {
		return err
	}
	files, err := openFiles(store.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.close()) }()
	if files.bytes == 0 {
		return errors.New("the store has no files to read from: its data fit into its memtables")
	}
	if err := x.warmUp(ctx, r, &store); err != nil {
		return err
	}
	for i := 0; i < len(r.experiment.Cells); i += 2 {
		if r.Done(i) {
			continue
		}
		run, err := x.measureStore(ctx, r, i, &store, files)
		if err != nil {
			return err
		}
		if err := x.measureRaw(ctx, r, i+1, meanRead(run), files); err != nil {
			return err
		}
	}
	return nil
}

// load puts all keys, and lets the store settle.
func (x Reads) load(ctx context.Context, r *Round, store *Store) error {
	told := r.Doing(0)
	err := workload.Load(ctx, store.Target, &x.Config, x.Config.Seed, loadgen.Counted("loading", "keys", told))
	if err != nil || store.Settle == nil {
		return err
	}
	const settling = "waiting for flushes and compactions"
	told(loadgen.Progress{What: settling})
	return loadgen.Watch(settling, told, func() error { return store.Settle(ctx) })
}

// warmUp reads from the whole store before the first cell, which would otherwise also read
// the indexes of all files.
func (x Reads) warmUp(ctx context.Context, r *Round, store *Store) error {
	config := r.experiment.Cells[0].Config
	config.Distribution, config.Present = workload.Uniform, config.Keys
	_, err := workload.Run(ctx, store.Target, config, workload.Observer{Second: bySecond(r.Doing(0), "warming up", config.Duration)})
	return err
}

func (x Reads) measureStore(ctx context.Context, r *Round, i int, store *Store, files *dataFiles) (*results.Run, error) {
	c, cell := &r.experiment.Cells[i], r.Cell(i)
	measures := x.measures(files)
	run, err := r.Measure(ctx, i, workload.Operations(), func(observe func(loadgen.Sample)) (*loadgen.Trial, error) {
		config := c.Config
		config.Present, config.Seed = config.Keys, config.Seed+uint64(r.Number)+1
		var summary *workload.Summary
		err := x.counted(measures, files, store.FileReads, func() (err error) {
			summary, err = workload.Run(ctx, store.Target, config, workload.Observer{Second: observe, Measured: store.Measured})
			return err
		})
		if summary == nil {
			return nil, err
		}
		cell.Workload, cell.Target = summary.Workload, store.Info
		return summary.Trial, err
	})
	if run != nil {
		run.Measures = measures
		if store.Activity != nil {
			run.Activity = store.Activity()
		}
		if store.Stages != nil {
			run.Stages = store.Stages()
		}
	}
	return run, err
}

// measureRaw reads so many bytes at a time at random places.
func (x Reads) measureRaw(ctx context.Context, r *Round, i int, bytes int, files *dataFiles) error {
	c := &r.experiment.Cells[i]
	measures := x.measures(files)
	run, err := r.Measure(ctx, i, rawOperations, func(observe func(loadgen.Sample)) (trial *loadgen.Trial, err error) {
		reading := files.reading(c.Config.Workers, bytes, c.Config.Seed+uint64(r.Number))
		reading.Span = loadgen.Span{Workers: c.Config.Workers, Duration: c.Config.Duration, Warmup: c.Config.Warmup, Interval: c.Config.Interval}
		reading.Observer.Second = observe
		err = x.counted(measures, files, files.counts, func() (err error) {
			trial, err = reading.Do(ctx)
			return err
		})
		return trial, err
	})
	if run != nil {
		run.Measures = measures
	}
	return err
}

func (x Reads) measures(files *dataFiles) map[string]float64 {
	return map[string]float64{
		measureKeys: float64(x.Config.Keys), measureDataBytes: float64(files.bytes), measureCache: float64(x.Setup.CacheBytes),
	}
}

// counted calls do without pages of the files in the page cache, unless they are to be kept,
// and measures what was read meanwhile.
func (x Reads) counted(measures map[string]float64, files *dataFiles, fileReads func() (calls, bytes uint64), do func() error) error {
	stop := func() error { return nil }
	if !x.KeepPages {
		evicting, ok, err := files.evicting()
		if err != nil {
			return err
		}
		if stop = evicting; ok {
			measures[measureEvicted] = 1
		}
	}
	disk, known := loadgen.DiskReadBytes()
	var calls, bytes uint64
	if fileReads != nil {
		calls, bytes = fileReads()
	}
	err := errors.Join(do(), stop())
	if after, ok := loadgen.DiskReadBytes(); known && ok {
		measures[measureDiskBytes] = float64(after - disk)
	}
	if fileReads != nil {
		callsAfter, bytesAfter := fileReads()
		measures[measureFileReads], measures[measureFileBytes] = float64(callsAfter-calls), float64(bytesAfter-bytes)
	}
	return err
}

// leastRead is the size of raw reads if the store read nothing, or next to nothing.
const leastRead = 512

// meanRead returns how many bytes a read of a file returned in the mean.
func meanRead(run *results.Run) int {
	if calls := run.Measures[measureFileReads]; calls > 0 {
		return max(int(run.Measures[measureFileBytes]/calls), leastRead)
	}
	return leastRead
}
