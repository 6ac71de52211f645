package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The operations of the core workloads, in the order of the reports.
const (
	coreRead = iota
	coreUpdate
	coreInsert
	coreScan
	coreModify
	coreKinds
)

var coreOperations = []string{"read", "update", "insert", "scan", "read-modify-write"}

// CoreOperations returns the names of the operations that a trial of a Core counts.
func CoreOperations() []string { return slices.Clone(coreOperations) }

// Core is one of the core workloads of YCSB: Cooper, Silberstein, Tam,
// Ramakrishnan and Sears, "Benchmarking Cloud Serving Systems with YCSB", SoCC
// 2010, table 2.
type Core struct {
	Name                               string
	Read, Update, Insert, Scan, Modify int  // percent, 100 in all
	Latest                             bool // reads prefer the newest records; otherwise scrambled zipfian
}

// mostScanned is the longest scan; lengths are uniform from 1 on.
const mostScanned = 100

// Cores are the core workloads in the order in which YCSB recommends to run them after
// one load: those that insert come last.
var Cores = []Core{
	{Name: "A", Read: 50, Update: 50},
	{Name: "B", Read: 95, Update: 5},
	{Name: "C", Read: 100},
	{Name: "F", Read: 50, Modify: 50},
	{Name: "D", Read: 95, Insert: 5, Latest: true},
	{Name: "E", Scan: 95, Insert: 5},
}

// ParseCore finds a core workload by its name, in upper or lower case.
func ParseCore(name string) (Core, error) {
	for _, c := range Cores {
		if strings.EqualFold(name, c.Name) {
			return c, nil
		}
	}
	return Core{}, fmt.Errorf("unknown core workload %q; choose of A, B, C, D, E and F", name)
}

// draw chooses the next operation.
func (c *Core) draw(rng *rand.Rand) int {
	n := rng.IntN(100)
	for operation, percent := range [...]int{c.Read, c.Update, c.Insert, c.Scan} {
		if n -= percent; n < 0 {
			return operation
		}
	}
	return coreModify
}

// chooser returns the recordChooser of one worker, for a number of records now and an
// expected number at the end.
func (c *Core) chooser(records, expected uint64, theta float64, rng *rand.Rand) recordChooser {
	if c.Latest {
		return newNewest(records, theta, rng)
	}
	return newPopular(expected, theta, rng)
}

// expected returns how many records to expect at the end. Like YCSB, it allows for
// twice as many insertions as the operations should make. If the number of operations
// is not known, it expects as many insertions as there are records (guessed).
func (c *Core) expected(records, operations uint64) uint64 {
	switch {
	case c.Insert == 0:
		return records
	case operations == 0:
		return 2 * records
	}
	return records + operations*uint64(c.Insert)/100*2
}

// demands returns an error if the target lacks an interface that the workload needs.
func (c *Core) demands(target Target) error {
	if _, ok := target.(Scanner); c.Scan > 0 && !ok {
		return fmt.Errorf("workload %s: the target cannot scan", c.Name)
	}
	if _, ok := target.(Transactor); c.Modify > 0 && !ok {
		return fmt.Errorf("workload %s: the target has no transactions", c.Name)
	}
	return nil
}
