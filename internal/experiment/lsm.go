package experiment

import (
	"fmt"
	"strconv"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// LSM is the experiment of the article on the LSM tree: which parameters of a workload, and
// which size of a memtable, decide how fast one tree is?
type LSM struct {
	Mixes      []workload.Mix
	FindRates  []int // percent
	Thresholds []Scaled
	KeySpaces  []Scaled
	Threads    []int
	Config     workload.Config // without Mix, FindRate, Keys and Workers
	Setup      Setup           // without FlushKeys
}

// Scaled is a number at full scale, and what it is at the scale of an experiment.
type Scaled struct{ Full, Actual uint64 }

// Parameters of the cells, besides mix and threads.
const (
	paramFind      = "find rate"
	paramThreshold = "flush at"
	paramKeySpace  = "keys"
)

// Experiment returns the experiment with one cell for each combination.
func (l LSM) Experiment() *Experiment {
	e := &Experiment{Name: "lsm", Title: "What makes an LSM tree fast?", Lead: lsmLead, Sections: lsmSections}
	for _, mix := range l.Mixes {
		for _, find := range l.FindRates {
			for _, threshold := range l.Thresholds {
				for _, keys := range l.KeySpaces {
					for _, threads := range l.Threads {
						config, setup := l.Config, l.Setup
						config.Mix, config.FindRate, config.Keys, config.Workers = mix, float64(find)/100, keys.Actual, threads
						setup.FlushKeys = int(threshold.Actual)
						e.Cells = append(e.Cells, Cell{
							Params: []results.Param{
								{Name: paramMix, Value: mix.Name}, {Name: paramFind, Value: fmt.Sprintf("%d %%", find)},
								{Name: paramThreads, Value: strconv.Itoa(threads)}, {Name: paramThreshold, Value: count(threshold.Full)},
								{Name: paramKeySpace, Value: count(keys.Full)},
							},
							Setup: setup, Config: config,
						})
					}
				}
			}
		}
	}
	return e
}

// count writes a number as the article does: 100k, 10M, 1G.
func count(n uint64) string {
	for _, unit := range []struct {
		of   uint64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.of && n%unit.of == 0 {
			return strconv.FormatUint(n/unit.of, 10) + unit.name
		}
	}
	return strconv.FormatUint(n, 10)
}
