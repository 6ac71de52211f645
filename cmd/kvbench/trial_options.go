package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// trialOptions are what ycsb, txn and snapshots have in common: records that are
// loaded once, and trials on them.
type trialOptions struct {
	targetOptions
	objectiveOptions
	records    workload.Records
	fields     int
	fieldBytes int
	threads    []int
	span       loadgen.Span // of each trial; Workers is one of threads
}

// threads is the default of --threads; countFlag is the name of the flag for records.
func (o *trialOptions) register(c *cobra.Command, countFlag string, count uint64, threads []int, duration time.Duration) {
	f := c.Flags()
	f.Uint64Var(&o.records.Count, countFlag, count, "records to load before anything is measured")
	f.IntVar(&o.fields, "fields", 10, "fields of a record, which is kept as one value")
	f.IntVar(&o.fieldBytes, "field-bytes", 100, "bytes of a field")
	f.IntSliceVar(&o.threads, "threads", threads, "workers, each with one operation at a time; a trial for each number of a list")
	f.DurationVar(&o.span.Warmup, "warmup", 0, "run this long before each measurement")
	f.DurationVar(&o.span.Duration, "duration", duration, "of each measurement")
	f.DurationVar(&o.span.Interval, "interval", 10*time.Second, "with --out: between two of its lines, in whole seconds")
	f.Float64Var(&o.records.Compressible, "compressible", 0, "share of a value that repeats, from 0 to 1")
	f.Uint64Var(&o.records.Seed, "seed", 1, "equal seeds draw equal operations")
	o.targetOptions.register(c)
}

// resolve returns everything that is wrong with the flags of a command that measures these
// operations.
func (o *trialOptions) resolve(c *cobra.Command, operations []string) error {
	if err := errors.Join(o.targetOptions.resolve(c), o.parse(operations)); err != nil {
		return err
	}
	if o.fields < 1 || o.fieldBytes < 1 || o.fieldBytes > kv.DefaultLimits.ValueBytes/o.fields {
		return fmt.Errorf("%d fields of %d bytes; want at least one of each, and a value of at most %s",
			o.fields, o.fieldBytes, bytesText(int64(kv.DefaultLimits.ValueBytes)))
	}
	o.records.ValueBytes = o.fields * o.fieldBytes
	if len(o.threads) == 0 {
		return errors.New("--threads: want at least one number")
	}
	errs := []error{o.records.Validate(), checkDistinct("threads", o.threads)}
	for _, workers := range o.threads {
		span := o.span
		span.Workers = workers
		errs = append(errs, span.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return refuseIdle(c, o.idle()...)
}

// with returns the span of a trial with so many workers.
func (o *trialOptions) with(workers int) loadgen.Span {
	span := o.span
	span.Workers = workers
	return span
}
