package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/internal/workload"
)

// setup is the first message to a worker.
type setup struct {
	Engine string        `json:"engine"`
	Store  peers.Options `json:"store"`
	Data   dataset       `json:"data"` // to load before the first task, if it has keys
	// Records are loaded in place of Data, for trials.
	Records *workload.Records `json:"records,omitempty"`
	// Loose says that the store does not settle after the load.
	Loose bool `json:"loose,omitempty"`
	// HeapBytes is the soft limit of the process's memory; zero: none.
	HeapBytes int64 `json:"heapBytes,omitempty"`
	// Again says that the directory already holds the data, and requests the cost of
	// opening it.
	Again bool `json:"again,omitempty"`
}

// entries is the number of entries to load.
func (s *setup) entries() int {
	if s.Records != nil {
		return int(s.Records.Count)
	}
	return s.Data.Keys
}

// message is sent by a worker: its progress, or the result of a setup or a task.
type message struct {
	Loaded int     `json:"loaded,omitempty"` // entries so far
	Second float64 `json:"second,omitempty"` // operations of the last second of a run
	Ready  *loaded `json:"ready,omitempty"`
	Result *result `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// loaded is the result of the setup.
type loaded struct {
	Load    time.Duration `json:"load"`
	Settle  time.Duration `json:"settle"`
	CPU     time.Duration `json:"cpu"`     // of the load
	Written writtenBytes  `json:"written"` // of the load and of settling
	Memory  memoryUse     `json:"memory"`
	Open    time.Duration `json:"open"`
	Held    heldBytes     `json:"held,omitzero"` // by a store that was opened again, without its cache
	Inside  peers.Inside  `json:"inside,omitzero"`
}

func newWorkerCommand() *cobra.Command {
	var profile string
	c := &cobra.Command{
		Use:    "worker",
		Short:  "Hold one engine and do what standard input says",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	c.Flags().StringVar(&profile, "cpu-profile", "", "write a profile of the tasks")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out := json.NewEncoder(c.OutOrStdout())
		err := work(c.Context(), json.NewDecoder(c.InOrStdin()), out, profile)
		if err != nil {
			err = out.Encode(message{Error: err.Error()}) // the parent process reports it
		}
		return failed(err)
	}
	return c
}

// work opens a store and performs tasks until its input ends.
func work(ctx context.Context, in *json.Decoder, out *json.Encoder, profile string) (err error) {
	var s setup
	if err := in.Decode(&s); err != nil {
		return err
	}
	e, err := findEngine(s.Engine)
	if err != nil {
		return err
	}
	if s.HeapBytes > 0 {
		debug.SetMemoryLimit(s.HeapBytes)
	}
	earlier := heldNow()
	begin := time.Now()
	store, err := e.open(s.Store)
	if err != nil {
		return err
	}
	opened := time.Since(begin)
	defer func() { err = errors.Join(err, store.Close()) }()
	bench, ready, err := prepare(ctx, store, s, out)
	if err != nil {
		return err
	}
	ready.Open, ready.Inside = opened, inside(store)
	if s.Again {
		ready.Held = heldBy(store, earlier)
	}
	if err := out.Encode(message{Ready: ready}); err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	for {
		var t task
		if err := in.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var r result
		run := runner{store, s.Store.Dir, out, t.Pulse}
		switch {
		case t.Run != nil:
			r, err = run.perform(ctx, *t.Run)
		case t.Trial != nil:
			r, err = run.performTrial(ctx, bench, t.Trial)
		case t.Mix != nil:
			r, err = run.performScanMix(ctx, s.Data, t.Mix)
		default:
			r, err = perform(ctx, store, s.Data, t)
		}
		if err != nil {
			return err
		}
		if err := out.Encode(message{Result: &r}); err != nil {
			return err
		}
	}
}

// prepare loads the data and lets the store settle. If the data are records, it returns
// what has trials of them.
func prepare(ctx context.Context, store peers.Store, s setup, out *json.Encoder) (*workload.Bench, *loaded, error) {
	if s.entries() == 0 || s.Again {
		return nil, new(loaded), nil
	}
	if s.Records != nil {
		return loadRecords(ctx, store, *s.Records, out)
	}
	settle := store.Settle
	if s.Loose {
		settle = func() error { return nil }
	}
	ready, err := timeLoad(settle, func() error { return loadData(ctx, store, s.Data, out) })
	return nil, ready, err
}

// loadData puts a data set.
func loadData(ctx context.Context, store peers.Store, d dataset, out *json.Encoder) error {
	count, told := 0, time.Now()
	put := store.Load
	if d.Singly {
		put = func(entries []peers.Entry) error {
			for _, e := range entries {
				if err := store.Put(ctx, e.Key, e.Value); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return d.load(func(entries []peers.Entry) error {
		if err := put(entries); err != nil {
			return err
		}
		count += len(entries)
		if now := time.Now(); now.Sub(told) > progressEvery || count == d.Keys {
			told = now
			return out.Encode(message{Loaded: count})
		}
		return nil
	})
}

// timeLoad measures a load, and then settling.
func timeLoad(settle, load func() error) (*loaded, error) {
	memory, cpu, written, begin := memoryNow(), process.OwnCPU(), writtenNow(), time.Now()
	if err := load(); err != nil {
		return nil, err
	}
	r := &loaded{Load: time.Since(begin), CPU: process.OwnCPU() - cpu, Memory: memory.watched()}
	begin = time.Now()
	if err := settle(); err != nil {
		return nil, err
	}
	r.Settle = time.Since(begin)
	r.Written = writtenNow().since(written)
	return r, nil
}

const progressEvery = 200 * time.Millisecond
