package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

// Values of --arrivals.
const (
	fixedArrivals   = "fixed"
	poissonArrivals = "poisson"
)

// options is the command line of run.
type options struct {
	targetOptions
	dataOptions
	objectiveOptions
	mix      string
	runs     int
	report   string
	resume   bool
	verify   bool
	arrivals string
	config   workload.Config
	loaded   bool // all keys are put before the measurement, without --preload
}

func (o *options) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.mix, "mix", "PUT_HEAVY", "operations: PUT_HEAVY, GET_HEAVY, DELETE_HEAVY, BALANCED, READ_ONLY or WRITE_ONLY")
	f.IntVar(&o.config.Workers, "threads", 16, "workers, each with one operation at a time")
	f.Uint64Var(&o.config.Keys, "keys", 10_000_000, "size of the key space")
	f.Float64Var(&o.config.FindRate, "find-rate", 0.5, "share of gets and deletes that ask for a key known to be there")
	f.Uint64Var(&o.config.Seed, "seed", 1, "equal seeds draw equal operations; each further run has the next seed")
	f.Uint64Var(&o.config.Preload, "preload", 0, "keys to put before the measurement")
	f.Uint64Var(&o.config.OpsPerSecond, "rate", 0, "operations a second in an open loop, also --rps; latencies then count from when an operation was due; 0 means a closed loop")
	f.Uint64Var(&o.config.OpsPerSecond, "rps", 0, "another name of --rate")
	f.Lookup("rps").Hidden = true
	f.StringVar(&o.arrivals, "arrivals", fixedArrivals, "with --rate: when operations are due, fixed (evenly spaced) or poisson (at random times)")
	o.objectiveOptions.register(c, "get")
	f.BoolVar(&o.verify, "verify", true, "check every value that is read: its key, its checksum, and which put wrote it; the report names the cost")
	f.BoolVar(&o.config.CheckDeletes, "check-deletes", false, "get before each delete, to report how many found something")
	f.DurationVar(&o.config.Warmup, "warmup", 0, "run this long before the measurement")
	f.DurationVar(&o.config.Duration, "duration", time.Minute, "of the measurement")
	f.DurationVar(&o.config.Interval, "interval", 10*time.Second, "with --out: between two of its lines, in whole seconds")
	f.IntVar(&o.runs, "runs", 1, "repeat the run, each on a new store, or with --reuse on the same; the report has the spread")
	f.StringVar(&o.report, "report", "", "write a directory with the figures and a page of pictures, report.html")
	f.BoolVar(&o.resume, "resume", false, resumeUsage)
	o.dataOptions.register(c, workload.Uniform, workload.KeyBytes, *workload.Fixed(1024))
	o.targetOptions.register(c)
}

// resolve parses flags that are words, and returns everything that is wrong with the flags.
func (o *options) resolve(c *cobra.Command) error {
	var errs [2]error
	o.config.Mix, errs[0] = workload.ParseMix(o.mix)
	errs[1] = o.apply(&o.config)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if err := o.targetOptions.resolve(c); err != nil {
		return err
	}
	if c.Flags().Changed("arrivals") && o.config.OpsPerSecond == 0 {
		return fmt.Errorf("--arrivals %s has no effect without a rate, because operations of a closed loop begin when others end: leave it out, or pass --rate", o.arrivals)
	}
	switch o.arrivals {
	case fixedArrivals:
	case poissonArrivals:
		o.config.Poisson = true
	default:
		return fmt.Errorf("--arrivals %s: want fixed or poisson", o.arrivals)
	}
	o.config.Unverified, o.config.Reused = !o.verify, o.reuse
	if err := checkRepeats("runs", o.runs); err != nil {
		return err
	}
	if o.runs > 1 && (o.data != "" || o.addr != "") && !o.reuse {
		return errors.New("--runs needs a new store for each run: leave out --data and --addr, or pass --reuse")
	}
	if o.resume {
		if err := o.refuseResume(); err != nil {
			return err
		}
	}
	if err := o.parse(workload.Operations()); err != nil {
		return err
	}
	if err := o.config.Validate(); err != nil {
		return err
	}
	return o.refuseIdle(c)
}

// refuseIdle returns an error for a flag that has no effect.
func (o *options) refuseIdle(c *cobra.Command) error {
	mix, config := o.config.Mix, &o.config
	puts := mix.Put > 0 || config.Preload > 0 || o.loaded
	return refuseIdle(c, append(o.targetOptions.idle(),
		idleFlags{o.report == "", []string{"resume"}, "without --report, which names the directory of the interrupted runs: leave it out, or pass --report DIR"},
		idleFlags{mix.Get+mix.Delete == 0, []string{"find-rate"}, "on the mix " + mix.Name + ", which neither gets nor deletes: leave it out, or choose another mix"},
		idleFlags{mix.Get == 0, []string{"verify"}, "on the mix " + mix.Name + ", which reads nothing: leave it out, or choose another mix"},
		idleFlags{mix.Delete == 0, []string{"check-deletes"}, "on the mix " + mix.Name + ", which does not delete: leave it out, or choose another mix"},
		idleFlags{!puts, []string{"value-size", "compressible"}, "on the mix " + mix.Name + ", which puts no values: leave it out, or pass --preload"},
		idleFlags{!puts && config.FindRate == 0, []string{"distribution", "theta"}, "if no key is put or asked for that is there: leave it out, or pass --find-rate or --preload"},
		idleTheta(config.Distribution),
	)...)
}
