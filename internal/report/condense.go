package report

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/results"
)

// Bounds of the figures over time. A page of a day had a hundred megabytes.
const (
	mostPoints  = 1200 // of a line or an area
	heatColumns = 300  // of a heat map, each with a rectangle for each of up to a hundred rows
)

// condensed returns a run for figures over time: if a run has more than most seconds, one with
// periods in place of seconds, with mean rates and shares, without heat, and with the store at the end of the
// period. seconds is how many seconds a period has; 1 means that the run is unchanged.
func condensed(run *results.Run, most int) (_ *results.Run, seconds int) {
	seconds = periodOf(run, most)
	if seconds == 1 {
		return run, 1
	}
	short := *run
	short.Series = nil
	before := 0.0
	for group := range slices.Chunk(run.Series, seconds) {
		short.Series = append(short.Series, period(before, group))
		before = group[len(group)-1].At
	}
	return &short, seconds
}

// periodOf returns how many seconds a period has if a run has at most that many periods.
func periodOf(run *results.Run, most int) int { return max((len(run.Series)+most-1)/most, 1) }

// period is one second in place of several, without heat, which HeatMap alone shows.
func period(before float64, group []results.Second) results.Second {
	p := group[len(group)-1]
	var operations float64
	at := before
	for i := range group {
		s := &group[i]
		operations += s.OpsPerSecond * (s.At - at)
		at = s.At
		if s.Store != nil && p.Store != nil && s.Store.Pressure > p.Store.Pressure {
			slowed := *p.Store
			slowed.Pressure = s.Store.Pressure
			p.Store = &slowed
		}
	}
	if p.At > before {
		p.OpsPerSecond = operations / (p.At - before)
	}
	p.OwnCPU, p.OtherCPU, p.ServerCPU = meanOf(group, ownCPU), meanOf(group, otherCPU), meanOf(group, serverCPU)
	p.Heat = nil
	return p
}

func ownCPU(s *results.Second) *float64    { return s.OwnCPU }
func otherCPU(s *results.Second) *float64  { return s.OtherCPU }
func serverCPU(s *results.Second) *float64 { return s.ServerCPU }

// meanOf returns the mean of a share over the seconds in which it is known; nil if there is none.
func meanOf(group []results.Second, share func(*results.Second) *float64) *float64 {
	sum, n := 0.0, 0
	for i := range group {
		if v := share(&group[i]); v != nil {
			sum, n = sum+*v, n+1
		}
	}
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &mean
}

// condensedNote explains a figure of a condensed run; nil if each point is one second.
func condensedNote(seconds int, what string) []string {
	if seconds == 1 {
		return nil
	}
	return []string{fmt.Sprintf("The run is long: each %s is of %d seconds.", what, seconds)}
}
