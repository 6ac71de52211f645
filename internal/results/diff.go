package results

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Comparison is what two results of one experiment say about each other.
type Comparison struct {
	Differences []Difference
	// Apart are the cells, and figures of cells, that were not compared, and why.
	Apart []Apart
	// Unanswered are the cells that were compared in which operations were refused or never began.
	Unanswered []Unanswered
	// Settings are those of the stores, and not of the workloads, that differ between
	// cells that were compared.
	Settings []Setting
}

// Apart is a cell, or a figure of one, that was not compared.
type Apart struct{ Cell, Why string }

// Unanswered are the shares of operations of a cell that were due and were refused or never began:
// the means of the runs.
type Unanswered struct {
	Cell string
	A, B float64
}

func unanswered(c *Cell) float64 {
	var shares []float64
	for _, r := range c.Runs {
		shares = append(shares, r.Unanswered())
	}
	return mean(shares)
}

// Difference compares one figure of one cell.
type Difference struct {
	Cell   string
	Metric string
	A, B   float64 // geometric means
	// Ratio is B / A, and Low and High are its interval at the level of the last step of
	// Holm's procedure: it excludes 1 where that procedure finds a difference. If the verdict
	// is Unknown, both are Ratio.
	Ratio, Low, High float64
	// Spread is the larger standard deviation of the two sides, relative to their means.
	Spread float64
	// Values is how many runs have the figure, on the side that has fewer. Of one run no spread is
	// known, and of less than FewestRuns no interval.
	Values  int
	Verdict Verdict
	// Main: the figure that decides, the rate of the cell.
	Main bool
	// Idle says that samples of a rate were 0, and how many; "" if none was. These have no
	// part in the means, and decide the verdict if one side has a larger share of them.
	Idle string
}

// Compare compares the cells that two results of one experiment have in common, by their
// parameters. Cells whose workloads have other settings, besides the seed, are not compared.
//
// A figure is better or worse if each side has at least FewestRuns runs and two conditions
// hold. First, the spread of the runs does not explain the difference: the logarithms of the
// runs' figures differ by Welch's statistic ("The generalization of Student's problem when
// several different population variances are involved", Biometrika 34, 1947), corrected for the
// number of figures by Holm's procedure ("A simple sequentially rejective multiple test
// procedure", Scandinavian Journal of Statistics 6, 1979). Second, the difference is larger
// than least, a share such as DefaultLeast, and larger than the standard deviation of the runs
// of either side: a smaller one says little of the next run, however certain it is.
//
// The statistic has the degrees of freedom of the side with fewer runs, with which no ratio of
// the two spreads makes false alarms more frequent (Mickey and Brown, "Bounds on the
// distribution functions of the Behrens-Fisher statistic", Annals of Mathematical Statistics
// 37, 1966). With those that Welch estimates, simulated comparisons of 20 rates, of 3 runs and
// of 10, had up to nine times as many false alarms as they may have.
//
// Holm's procedure bounds the probability of any false verdict, also if figures depend on each
// other, as those of one cell do. The procedure of Benjamini and Hochberg bounds the share of
// false ones among the verdicts only, which is too weak for a verdict that ends a build.
// Seconds of a run do not stand in for runs, because they do not show how runs differ.
//
// It returns an error if nothing can be compared.
func Compare(a, b *Result, least float64) (*Comparison, error) {
	if !(least >= LeastOfLeast && least < 1) { // NaN is neither
		return nil, fmt.Errorf("results: the least difference that counts is %v; want %v to less than 1", least, LeastOfLeast)
	}
	if a.Experiment != b.Experiment {
		return nil, fmt.Errorf("results: the first is of kvbench %s and the second of kvbench %s: they have no figure in common", a.Experiment, b.Experiment)
	}
	c := new(Comparison)
	pairs := c.pair(a, b)
	if len(pairs) == 0 {
		return nil, fmt.Errorf("results: nothing can be compared: %s", c.reasons())
	}
	var rows []*row
	for _, p := range pairs {
		c.Settings = addSettings(c.Settings, targetSettings(p.a, p.b))
		if u := (Unanswered{p.a.Name(), unanswered(p.a), unanswered(p.b)}); max(u.A, u.B) > loadgen.MostUnanswered {
			c.Unanswered = append(c.Unanswered, u)
		}
		for _, m := range metrics(p.a, p.b) {
			switch r, why := m.row(p.a, p.b); {
			case r != nil:
				rows = append(rows, r)
			case why != "":
				c.Apart = append(c.Apart, Apart{strings.TrimPrefix(p.a.Name()+", "+m.name, ", "), why})
			}
		}
	}
	decide(rows, least)
	for _, r := range rows {
		c.Differences = append(c.Differences, r.finish())
	}
	return c, nil
}

// cellPair is a cell of each of two results.
type cellPair struct{ a, b *Cell }

// pair finds the cells that can be compared, and notes the others.
func (c *Comparison) pair(a, b *Result) []cellPair {
	var pairs []cellPair
	apart := func(cell *Cell, why string) { c.Apart = append(c.Apart, Apart{cell.Name(), why}) }
	partners, paired := partners(a, b), make(map[*Cell]bool)
	for _, ca := range a.Cells {
		cb := partners[ca]
		if cb == nil {
			apart(ca, "only the first has it")
			continue
		}
		paired[cb] = true
		if why := incomparable(ca, cb); why != "" {
			apart(ca, why)
			continue
		}
		pairs = append(pairs, cellPair{ca, cb})
	}
	for _, cb := range b.Cells {
		if !paired[cb] {
			apart(cb, "only the second has it")
		}
	}
	return pairs
}

// partners returns for cells of a the cell of b to compare it with: that of the same parameters,
// or one that is alike and that no other cell of a has.
func partners(a, b *Result) map[*Cell]*Cell {
	of, left := make(map[*Cell]*Cell), slices.Clone(b.Cells)
	for _, same := range []func(*Cell, *Cell) bool{func(ca, cb *Cell) bool { return slices.Equal(ca.Params, cb.Params) }, (*Cell).alike} {
		for _, ca := range a.Cells {
			if of[ca] != nil {
				continue
			}
			if i := slices.IndexFunc(left, func(cb *Cell) bool { return same(ca, cb) }); i >= 0 {
				of[ca] = left[i]
				left = slices.Delete(left, i, i+1)
			}
		}
	}
	return of
}

// reasons says why cells were not compared, of the first few.
func (c *Comparison) reasons() string {
	const few = 3
	var parts []string
	for _, apart := range c.Apart[:min(few, len(c.Apart))] {
		parts = append(parts, apart.Cell+": "+apart.Why)
	}
	switch more := len(c.Apart) - few; {
	case len(c.Apart) == 0:
		return "neither has a measured combination of parameters"
	case more > 0:
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// incomparable says why the runs of two cells with the same parameters cannot be compared;
// "" if they can.
func incomparable(a, b *Cell) string {
	for i, c := range []*Cell{a, b} {
		which := [...]string{"first", "second"}[i]
		if len(c.Runs) == 0 {
			return "the " + which + " has no run of it"
		}
		for _, r := range c.Runs {
			if r.Error != "" {
				return "a run of the " + which + " ended with an error: " + r.Error
			}
			if r.Interrupted {
				return "a run of the " + which + " was interrupted"
			}
		}
	}
	if settings := workloadSettings(a, b); len(settings) > 0 {
		return "the workloads differ: " + settingsText(settings)
	}
	return ""
}
