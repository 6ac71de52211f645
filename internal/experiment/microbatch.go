package experiment

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// Microbatch is the experiment of the article on micro-batching: does answering several
// concurrent reads together raise throughput, and how many should it be? In the article a
// batch is one statement of a database. Here it is one frame between client and server, or
// one pass of the engine over files on a slow device.
type Microbatch struct {
	Stores  []string
	Sizes   []int
	Readers []int
	Reads   uint64 // of a run with the most readers
	Config  workload.Config
	Setup   Setup // of the disk store; the server has no slow device
}

// The stores of Microbatch.
const (
	StoreServer = "server"
	StoreDisk   = "disk"
)

// ReadBatching is how reads are batched.
type ReadBatching struct {
	Alone   bool          // each by itself
	Size    int           // most reads of a batch; 0: the default
	Linger  time.Duration // how long a batch that is not full waits for more reads
	Runners int           // batches at a time; 0: the default
}

// Parameters of the cells.
const (
	paramStore   = "store"
	paramBatch   = "batch"
	paramReaders = "readers"

	// BatchNone and BatchAdaptive stand for a batch size: none, and what the store finds
	// best.
	BatchNone     = "none"
	BatchAdaptive = "adaptive"
)

// MeasureReadsPerBatch is the figure of a run that counts the reads of its batches itself.
const MeasureReadsPerBatch = "reads/batch"

// BatchParams returns the parameters of the cell for a store, a number of readers, and a
// batch size: a number, BatchNone or BatchAdaptive.
func BatchParams(store string, readers int, batch string) []results.Param {
	return []results.Param{
		{Name: paramStore, Value: store}, {Name: paramReaders, Value: strconv.Itoa(readers)}, {Name: paramBatch, Value: batch},
	}
}

// LoneBatchSize is the batch size that the article settled for: a lone reader is measured
// with it, unbatched, and with the default.
const LoneBatchSize = 16

// leastReads is the least number of reads of a run: of fewer, the rate means nothing.
const leastReads = 1000

// Experiment returns the experiment with one cell for each combination. A lone reader has
// only three: it cannot fill a batch.
func (m Microbatch) Experiment() *Experiment {
	e := &Experiment{
		Name: "microbatch", Title: "Do micro-batches of reads pay?",
		Lead: microbatchLead, Sections: microbatchSections,
	}
	most := 1
	for _, n := range m.Readers {
		most = max(most, n)
	}
	for _, store := range m.Stores {
		for _, readers := range m.Readers {
			add := func(batch string, how ReadBatching) {
				config, setup := m.Config, m.Setup
				config.Mix, config.FindRate, config.Workers = readsOnly, 1, readers
				config.Operations = max(uint64(float64(m.Reads)*float64(readers)/float64(most)), leastReads)
				setup.Reads, setup.Server = how, store == StoreServer
				if setup.Server {
					setup.CacheBytes, setup.ReadLatency, setup.ReadDepth = 0, 0, 0
				}
				e.Cells = append(e.Cells, Cell{
					Params: BatchParams(store, readers, batch),
					Setup:  setup, Config: config,
				})
			}
			add(BatchNone, ReadBatching{Alone: true})
			for _, n := range m.Sizes {
				if readers > 1 || n == LoneBatchSize {
					add(strconv.Itoa(n), ReadBatching{Size: n, Linger: m.Setup.Reads.Linger, Runners: m.Setup.Reads.Runners})
				}
			}
			add(BatchAdaptive, ReadBatching{})
		}
	}
	return e
}

// readsOnly is the mix of Microbatch.
var readsOnly = workload.Mix{Name: "READ_ONLY", Get: 100}

// StatisticsFile is the file to which Statistics are appended, as by the article's driver.
const StatisticsFile = "statistics.csv"

// StatisticsHead names the columns of Statistics.
var StatisticsHead = []string{
	"began", "commit", "store", "readers", "batch", "run", "reads", "seconds", "mean_ns", "p50_ns", "p99_ns", "worst_ns", "reads_per_second", "reads_per_batch",
}

// Statistics returns a row for each run of Microbatch that ended as it should.
func Statistics(r *results.Result) [][]string {
	var rows [][]string
	for _, c := range r.Cells {
		for n, run := range c.Runs {
			if run.Error != "" || run.Interrupted {
				continue
			}
			get := run.Operation("get")
			integer := func(n int64) string { return strconv.FormatInt(n, 10) }
			decimal := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
			rows = append(rows, []string{
				r.Began, r.Environment.Commit, c.Param(paramStore), c.Param(paramReaders), c.Param(paramBatch), strconv.Itoa(n + 1),
				strconv.FormatUint(get.Count, 10), decimal(run.Seconds), integer(get.MeanNanos), integer(get.Nanos.P50), integer(get.Nanos.P99), integer(get.Nanos.Max),
				decimal(run.OpsPerSecond), decimal(readsPerBatch(c, run)),
			})
		}
	}
	return rows
}

// readsPerBatch returns what was counted; 1 without batching, and 0 if it is not known.
func readsPerBatch(c *results.Cell, run *results.Run) float64 {
	if n := run.Measures[MeasureReadsPerBatch]; n > 0 {
		return n
	}
	a := run.Counters()
	switch {
	case c.Param(paramBatch) == BatchNone:
		return 1
	case a == nil:
		return 0
	case c.Param(paramStore) == StoreServer:
		return a.ReadsPerFrame
	}
	return a.OpsPerReadBatch
}

// microbatchLead compares the default with the best fixed size and with none.
func microbatchLead(r *results.Result) string {
	lead := ""
	for _, store := range []string{StoreServer, StoreDisk} {
		b := newBatches(r, store, mostReaders(r, store))
		none, adaptive := b.cell(BatchNone), b.cell(BatchAdaptive)
		size, best := b.best()
		if none == nil || adaptive == nil || best == nil {
			continue
		}
		lead += fmt.Sprintf("%s The default reads %s times as much as unbatched, and %s of the best fixed batch size, %s. ",
			storeTitle(store)+":", times(adaptive, none), percent(adaptive, best), size)
	}
	if lead == "" {
		return "Reads by batch size."
	}
	return lead[:len(lead)-1]
}

func storeTitle(store string) string {
	if store == StoreServer {
		return "Over the network"
	}
	return "On a slow disk"
}
