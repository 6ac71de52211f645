package experiment

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// Experiment is a question with the measurements that answer it.
type Experiment struct {
	Name  string // the command
	Title string
	Cells []Cell
	// Round measures every cell once, by Round.Measure; nil: each by its Config, on a store
	// of its own.
	Round func(context.Context, *Round) error
	// Together is how many cells in a row one store serves, so that they are measured all or
	// none; 0 means 1.
	Together int
	// Beside reports whether a cell is measured for comparison only, so that objectives do not
	// bind it; nil: none is.
	Beside func(*results.Cell) bool
	// Lead answers the question in a sentence, and Sections in pictures.
	Lead     func(*results.Result) string
	Sections func(*results.Result) []report.Section
}

// Cell is one combination of parameters.
type Cell struct {
	Params []results.Param
	Setup  Setup
	Config workload.Config
}

// Setup is how the store of a cell is made. Zero values are the engine's defaults.
type Setup struct {
	Partitions  int
	FlushKeys   int
	MemoryBytes int64
	CacheBytes  int64 // of the block cache; 0: its share of MemoryBytes
	CountReads  bool  // of files: see Store.FileReads
	Reads       ReadBatching
	ReadLatency time.Duration // added to each read of a file
	ReadDepth   int           // reads of files at a time; 0: any number
	Server      bool          // ask the store through a server, over a network connection
}

// Store is a store that was made for one run.
type Store struct {
	Target workload.Target
	Dir    string // of its files; "" if there are none
	// Settle ends the work that the store does on its own after many writes; nil if there
	// is none.
	Settle func(context.Context) error
	// FileReads returns how often files were read so far, and how many bytes; nil if that is
	// not known.
	FileReads func() (calls, bytes uint64)
	// Info describes the store in the report, and Activity what it did, once the run is
	// over; it may be nil.
	Info     any
	Activity func() any
	// Measured is called when a measurement begins and when it ends, and Stages returns where
	// the time of its calls went. They may be nil.
	Measured func(begins bool)
	Stages   func() []results.Stages
	// State returns what the store holds; nil if it cannot tell.
	State func() *results.StoreState
	Close func() error // closes the target and removes the store
}

// Options say how to run an experiment.
type Options struct {
	Runs int
	// Scale of times and sizes, Command and Objectives are recorded in the result.
	Scale      float64
	Command    []string
	Objectives string
	// Options of the command are recorded in the result, and Resumed, if it is not nil, is a
	// result of results.Resume: its runs are not measured again, and others are added.
	Options map[string]string
	Resumed *results.Result
	// Open makes a new, empty store.
	Open func(Setup) (Store, error)
	// Environment describes the machine.
	Environment loadgen.Environment
	// Save is called before each run but the first one, with what was measured until then,
	// so that a process that is killed later leaves that. It may be nil.
	Save func(*results.Result)
	// Progress gets a line for each run, and one each second while it goes on.
	Progress func(Progress)
}

// Progress says where an experiment is.
type Progress struct {
	Run, Runs int // of all cells together, from 1 on
	Cell      *results.Cell
	Sample    *loadgen.Sample // of the last second; nil when a run begins
	Left      time.Duration   // estimated; 0 during the first run
	// Doing is what is done before or after a measurement; nil if nothing is known of it.
	Doing *loadgen.Progress
}

// Plan returns the result of an experiment of which nothing is measured yet.
func (e *Experiment) Plan(o Options) *results.Result {
	r := &results.Result{
		Version: results.Version, Experiment: e.Name, Command: o.Command, Scale: o.Scale, Options: o.Options, Objectives: o.Objectives,
		Began: time.Now().UTC().Format(time.RFC3339), Environment: o.Environment, Planned: o.Runs * len(e.Cells),
	}
	for i := range e.Cells {
		r.Cells = append(r.Cells, &results.Cell{Params: e.Cells[i].Params})
	}
	return r
}

// keepWhole leaves out runs of cells that are measured together with others whose run is missing.
func (e *Experiment) keepWhole(r *results.Result) {
	for group := range slices.Chunk(r.Cells, max(e.Together, 1)) {
		whole := len(group[0].Runs)
		for _, c := range group {
			whole = min(whole, len(c.Runs))
		}
		for _, c := range group {
			c.Runs = c.Runs[:whole]
		}
	}
}

// Run measures all cells. When ctx ends, it returns what was measured until then with
// the error of ctx. A wrong answer, or another error of an operation, ends the experiment:
// the result then has the run with its error.
func (e *Experiment) Run(ctx context.Context, o Options) (*results.Result, error) {
	r := o.Resumed
	if r == nil {
		r = e.Plan(o)
	}
	e.keepWhole(r)
	round := &Round{Options: &o, experiment: e, result: r, began: time.Now(), before: r.Measured()}
	for range o.Runs {
		if !round.done() {
			if err := e.round(ctx, round); err != nil {
				return r, err
			}
		}
		round.Number++
	}
	return r, nil
}

func (e *Experiment) round(ctx context.Context, r *Round) error {
	if e.Round != nil {
		return e.Round(ctx, r)
	}
	for i := range e.Cells {
		if r.Done(i) {
			continue
		}
		if err := r.measureAlone(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// Judged returns the cells of a result that objectives bind.
func (e *Experiment) Judged(r *results.Result) []*results.Cell {
	if e.Beside == nil {
		return r.Cells
	}
	return slices.DeleteFunc(slices.Clone(r.Cells), e.Beside)
}

// Report returns the page of a result.
func (e *Experiment) Report(r *results.Result) *report.Page {
	return &report.Page{Title: e.Title, Lead: e.Lead(r), Result: r, Sections: e.Sections(r)}
}

// WriteTables writes the tables of a page as text.
func WriteTables(w io.Writer, p *report.Page) error {
	for i := range p.Sections {
		for _, t := range p.Sections[i].Tables {
			if err := t.WriteText(w); err != nil {
				return err
			}
		}
	}
	return nil
}
