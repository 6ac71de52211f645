package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// transactionOptions is the command line of txn.
type transactionOptions struct {
	trialOptions
	shape      workload.Transactions
	readBeside bool
	writeRate  uint64
	rounds     int
	report     string
	resume     bool

	compared []comparison
	measured []*results.Run // of this command
}

func newTransactionsCommand(open opener) *cobra.Command {
	var o transactionOptions
	c := &cobra.Command{
		Use:   "txn",
		Short: "Measure how transactions scale and how often they conflict",
		Long: `Measure how transactions scale and how often they conflict.

A transaction reads some records and writes some of them back. If it conflicts it
starts again, and its latency includes all attempts.

With --read-beside readers are measured instead: those of YCSB's workload C,
alternately without and with one concurrent writer of such transactions. The
result is the median ratio of the rounds.

Every answer is checked, and at the end all records are read: a lost update ends
the run with exit code 1. The figures are printed, and written to the file of --out.
Without --read-beside, --report writes a page of them too.`,
		Example: `  kvbench txn --threads 1,2,4,8 --hot-fraction 0.01 --hot-rate 0.5 --report txn
  kvbench txn --read-beside --threads 4 --write-rate 500 --rounds 5`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.IntVar(&o.shape.Reads, "reads", 4, "records that a transaction reads")
	f.IntVar(&o.shape.Writes, "writes", 2, "of these, records that it writes")
	f.Float64Var(&o.shape.HotFraction, "hot-fraction", 0.01, "share of the records that are hot")
	f.Float64Var(&o.shape.HotRate, "hot-rate", 0.5, "share of the reads that go to hot records; 0: all records are alike")
	f.BoolVar(&o.readBeside, "read-beside", false, "measure readers without and with a concurrent writer")
	f.Uint64Var(&o.writeRate, "write-rate", 0, "with --read-beside: transactions a second of the writer; 0 is a tenth of what it can do alone")
	f.IntVar(&o.rounds, "rounds", 3, "with --read-beside: how often both are measured")
	f.StringVar(&o.report, "report", "", "write a directory with the figures and a page of pictures, report.html")
	f.BoolVar(&o.resume, "resume", false, resumeUsage+"; a new store then has the loaded records, and not what the complete trials wrote")
	o.objectiveOptions.register(c, "transaction")
	o.trialOptions.register(c, "keys", 100_000, []int{1, 2, 4, 8, 16, 32}, 10*time.Second)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		if o.readBeside {
			return failed(judgedTrials(c, &o.trialOptions, open, o.runBeside, o.printBeside))
		}
		result, err := o.measure(c, open)
		if err == nil {
			err = o.judge(c, result.Cells)
		}
		return failed(err)
	}
	return c
}

func (o *transactionOptions) resolve(c *cobra.Command) error {
	if err := o.trialOptions.resolve(c, workload.TransactionOperations()); err != nil {
		return err
	}
	for _, name := range []string{"write-rate", "rounds"} {
		if c.Flags().Changed(name) && !o.readBeside {
			return fmt.Errorf("--%s goes with --read-beside", name)
		}
	}
	if err := checkRepeats("rounds", o.rounds); err != nil {
		return err
	}
	switch {
	case o.readBeside && o.shape.Writes == 0:
		return errors.New("--writes 0: the writer beside the readers has nothing to write")
	case o.writeRate > workload.MaxRate:
		return fmt.Errorf("--write-rate %d: want at most %d", o.writeRate, uint64(workload.MaxRate))
	}
	if err := o.shape.Validate(o.records.Count); err != nil {
		return err
	}
	if o.resume {
		if err := o.refuseResume(); err != nil {
			return err
		}
	}
	return refuseIdle(c,
		idleFlags{o.readBeside, []string{"report", "resume"}, "with --read-beside, whose rounds are compared with each other: leave it out"},
		idleFlags{o.report == "", []string{"resume"}, "without --report, which names the directory of the interrupted trials: leave it out, or pass --report DIR"},
		idleFlags{o.shape.HotRate == 0 && o.shape.HotFraction > 0, []string{"hot-fraction"}, "with --hot-rate 0, because no reads go to hot records: leave it out, or choose a rate above 0"},
		idleFlags{o.shape.HotFraction == 0 && o.shape.HotRate > 0, []string{"hot-rate"}, "with --hot-fraction 0, because no record is hot: leave it out, or choose a fraction above 0"},
	)
}

// measure runs the trials that are missing, and writes the report if one was asked for.
func (o *transactionOptions) measure(c *cobra.Command, open opener) (_ *results.Result, err error) {
	result := &results.Result{
		Version: results.Version, Experiment: c.Name(), Command: os.Args, Scale: 1, Planned: len(o.threads),
		Began: time.Now().UTC().Format(time.RFC3339), Options: optionsOf(c), Objectives: o.slo,
	}
	for _, threads := range o.threads {
		result.Cells = append(result.Cells, &results.Cell{Params: experiment.TransactionParams(o.name(), threads)})
	}
	if o.report == "" {
		_, err = runTrials(c, &o.trialOptions, open, func(t *trials) error { return o.run(t, result, func(*results.Result) {}) }, o.print)
		return result, err
	}
	held, err := results.Prepare(o.report)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if result.Environment, err = readEnvironment("."); err != nil {
		return nil, err
	}
	if result, err = resumed(c, o.resume, o.report, result); err != nil {
		return nil, err
	}
	if page := experiment.Transactions().Report; !result.Complete() {
		_, err = runTrials(c, &o.trialOptions, open, func(t *trials) error { return o.run(t, result, newSaver(c, o.report, page)) }, o.print)
	}
	if errors.Is(err, workload.ErrWrongAnswer) { // perhaps of the audit after the trials
		for _, run := range o.measured {
			run.Error = cmp.Or(run.Error, err.Error())
		}
	}
	if anyRun(result) {
		err = errors.Join(err, writeReport(c, o.report, result, experiment.Transactions().Report(result)))
	}
	return result, err
}

// transactionSettings are those of all trials of the command.
type transactionSettings struct {
	recordSettings
	Reads       int     `json:"reads"` // of a transaction
	Writes      int     `json:"writes"`
	HotFraction float64 `json:"hotFraction,omitempty"`
	HotRate     float64 `json:"hotRate,omitempty"`
}

// run measures the transactions with each number of threads whose cell has no run, and calls save
// before each but the first one.
func (o *transactionOptions) run(t *trials, result *results.Result, save func(*results.Result)) error {
	t.settings = transactionSettings{o.settings(), o.shape.Reads, o.shape.Writes, o.shape.HotFraction, o.shape.HotRate}
	for i, threads := range o.threads {
		cell := result.Cells[i]
		if len(cell.Runs) > 0 {
			continue // before it was resumed
		}
		if anyRun(result) {
			save(result)
		}
		label := trialLabel{Benchmark: "txn", Workload: o.name(), Threads: threads}
		err := t.collected(label, workload.TransactionOperations(), cell, func(observer loadgen.Observer) (*loadgen.Trial, error) {
			return t.RunTransactions(t.command.Context(), o.shape, o.with(threads), observer)
		})
		o.measured = append(o.measured, cell.Runs...)
		if err != nil || t.over() {
			return err
		}
	}
	return nil
}

// name is what a transaction does, such as 4r2w.
func (o *transactionOptions) name() string {
	return fmt.Sprintf("%dr%dw", o.shape.Reads, o.shape.Writes)
}

func (o *transactionOptions) print(t *trials, out io.Writer, err error) error {
	return printTrials(t, out, err, o.describe())
}

func (o *transactionOptions) describe() string {
	hot := "all alike"
	if o.shape.HotFraction > 0 && o.shape.HotRate > 0 {
		hot = fmt.Sprintf("%s of them hot, for %s of the reads", percent(&o.shape.HotFraction), percent(&o.shape.HotRate))
	}
	return fmt.Sprintf("Transactions of %d reads and %d writes, %s records of %s bytes, %s,",
		o.shape.Reads, o.shape.Writes, grouped(float64(o.records.Count)), grouped(float64(o.records.ValueBytes)), hot)
}

func (o *transactionOptions) runBeside(t *trials) error {
	for _, threads := range o.threads {
		label := trialLabel{Benchmark: "txn", Workload: "read beside", Threads: threads}
		beside, err := t.RunReadBeside(t.command.Context(),
			workload.ReadBeside{Transactions: o.shape, WriteRate: o.writeRate, Rounds: o.rounds}, o.with(threads), t.observer(label))
		if beside == nil {
			return err
		}
		if err := errors.Join(err, t.endedAll(label, beside.Trials)); err != nil {
			return err
		}
		what := fmt.Sprintf("%s beside %s transactions/s", report.Plural(threads, "reader"), grouped(float64(beside.WriteRate)))
		o.compared = append(o.compared, comparison{what, &beside.Reads, beside.Warnings()})
		if err := t.compared(label, beside); err != nil || t.over() {
			return err
		}
	}
	return nil
}

func (o *transactionOptions) printBeside(t *trials, out io.Writer, err error) error {
	return errors.Join(printComparisons(out, o.compared), printTrials(t, out, err, o.describe()))
}
