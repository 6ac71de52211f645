package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// SLO is a bound of a latency, such as get.p99<5ms.
type SLO struct {
	Operation string // "" for operations of all kinds together
	Quantile  string // one of sloQuantiles
	Bound     time.Duration
}

var sloQuantiles = []struct {
	name string
	of   func(loadgen.Latency) int64
}{
	{"p50", func(l loadgen.Latency) int64 { return l.P50 }},
	{"p90", func(l loadgen.Latency) int64 { return l.P90 }},
	{"p95", func(l loadgen.Latency) int64 { return l.P95 }},
	{"p99", func(l loadgen.Latency) int64 { return l.P99 }},
	{"p99.9", func(l loadgen.Latency) int64 { return l.P999 }},
	{"p99.99", func(l loadgen.Latency) int64 { return l.P9999 }},
	{"max", func(l loadgen.Latency) int64 { return l.Max }},
}

// ParseSLOs reads bounds that are separated by commas: [OPERATION.]QUANTILE<DURATION.
func ParseSLOs(text string, operations []string) ([]SLO, error) {
	var all []SLO
	for part := range strings.SplitSeq(text, ",") {
		s, err := parseSLO(strings.TrimSpace(part), operations)
		if err != nil {
			return nil, fmt.Errorf("%q is no objective such as p99<5ms or get.p99.9<20ms: %w", part, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func parseSLO(text string, operations []string) (SLO, error) {
	figure, bound, ok := strings.Cut(text, "<")
	if !ok {
		return SLO{}, fmt.Errorf("it has no <")
	}
	s := SLO{Quantile: strings.TrimSpace(figure)}
	for _, operation := range operations {
		if rest, ok := strings.CutPrefix(s.Quantile, operation+"."); ok {
			s.Operation, s.Quantile = operation, rest
			break
		}
	}
	if _, ok := s.of(loadgen.Latency{}); !ok {
		var names []string
		for _, q := range sloQuantiles {
			names = append(names, q.name)
		}
		return SLO{}, fmt.Errorf("it bounds %q; want one of %s, after nothing or one of %s with a point", s.Quantile, strings.Join(names, ", "), strings.Join(operations, ", "))
	}
	var err error
	if s.Bound, err = time.ParseDuration(strings.TrimSpace(bound)); err != nil {
		return SLO{}, err
	}
	if s.Bound <= 0 {
		return SLO{}, fmt.Errorf("its bound is %v; want more than 0", s.Bound)
	}
	return s, nil
}

func (s SLO) of(l loadgen.Latency) (int64, bool) {
	for _, q := range sloQuantiles {
		if q.name == s.Quantile {
			return q.of(l), true
		}
	}
	return 0, false
}

func (s SLO) String() string { return s.name() + "<" + s.Bound.String() }

func (s SLO) name() string {
	if s.Operation == "" {
		return s.Quantile
	}
	return s.Operation + "." + s.Quantile
}

// Latency returns the bounded latency of a run, and false if no such operation was due. It is that
// of all operations that were due: a refused one took loadgen.Never, and one that never began as
// long as it waited.
func (s SLO) Latency(t *loadgen.Trial) (time.Duration, bool) {
	l, due := t.All, t.AllDue
	if s.Operation != "" {
		o := t.Operation(s.Operation)
		l, due = o.Nanos, o.DueNanos
	}
	if due != nil {
		l = *due
	}
	n, ok := s.of(l)
	return time.Duration(n), ok && n > 0
}

// Met reports whether a run meets the objective. A run without such operations does not.
func (s SLO) Met(t *loadgen.Trial) bool {
	l, ok := s.Latency(t)
	return ok && l < s.Bound
}

// Missed returns a sentence for each objective and each cell of which a run missed it. An
// objective for one operation binds only the cells that have such operations, if there are any.
func Missed(objectives []SLO, cells []*Cell) []string {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return len(c.Runs) == 0 })
	var sentences []string
	for _, s := range objectives {
		bound := slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return !slices.ContainsFunc(c.Runs, s.measured) })
		if len(bound) == 0 {
			sentences = append(sentences, fmt.Sprintf("%s: there were no such operations", s))
		}
		for _, c := range bound {
			if missed := s.missed(c.Runs); missed != "" && len(cells) > 1 {
				sentences = append(sentences, c.Name()+": "+missed)
			} else if missed != "" {
				sentences = append(sentences, missed)
			}
		}
	}
	return sentences
}

// measured reports whether a run had operations of the objective.
func (s SLO) measured(r *Run) bool {
	_, ok := s.Latency(r.Trial)
	return ok
}

// missed says by how much some runs of a cell missed the objective; "" if all met it.
func (s SLO) missed(runs []*Run) string {
	missed, worst := 0, time.Duration(0)
	for _, r := range runs {
		if s.Met(r.Trial) {
			continue
		}
		missed++
		if l, ok := s.Latency(r.Trial); ok {
			worst = max(worst, l)
		}
	}
	switch {
	case missed == 0:
		return ""
	case worst == loadgen.Never:
		return fmt.Sprintf("%s: %s has no bound, because the store refused operations, in %d of %d runs", s, s.name(), missed, len(runs))
	case worst == 0:
		return fmt.Sprintf("%s: there were no such operations, in %d of %d runs", s, missed, len(runs))
	}
	over := worst - s.Bound
	return fmt.Sprintf("%s: %s was %s, %s (%s) too long, in %d of %d runs", s, s.name(), rounded(worst), rounded(over),
		strconv.FormatFloat(100*float64(over)/float64(s.Bound), 'f', 0, 64)+" %", missed, len(runs))
}

// rounded keeps three digits of a duration.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit)
}
