package main

import (
	"slices"
	"time"

	"github.com/kvd-db/kvd/bench/peers"
)

// stretch is an amount of time, not necessarily contiguous, and the operations that
// ended in it.
type stretch struct {
	Ops  float64       `json:"ops"`
	Took time.Duration `json:"took"`
}

func (s stretch) plus(o stretch) stretch { return stretch{s.Ops + o.Ops, s.Took + o.Took} }

// secondBefore returns the second that ended at end.
func secondBefore(end time.Time) peers.Span {
	return peers.Span{Begin: end.Add(-time.Second), End: end}
}

// noteMerging sets, for seconds that ended at the given times, the share of each during
// which the store compacted. The merges are disjoint and in order.
func noteMerging(seconds []second, ends []time.Time, merges []peers.Span) {
	for i := range seconds {
		share := covered(secondBefore(ends[i]), merges)
		seconds[i].Merging = &share
	}
}

// noteStretches sets the operations of each second while the store compacted, and while
// it did not. Operations between two beats are not counted if a merge covers only a
// part of that time, as it is unknown in which part they ended.
func noteStretches(seconds []second, ends []time.Time, beats []beat, merges []peers.Span) {
	for i := range seconds {
		within := secondBefore(ends[i])
		first, _ := slices.BinarySearchFunc(beats, within.Begin, func(b beat, t time.Time) int { return b.at.Compare(t) })
		for j := first + 1; j < len(beats) && !beats[j].at.After(within.End); j++ {
			between := peers.Span{Begin: beats[j-1].at, End: beats[j].at}
			done := stretch{float64(beats[j].ops - beats[j-1].ops), between.End.Sub(between.Begin)}
			switch covered(between, merges) {
			case 0:
				seconds[i].Quiet = seconds[i].Quiet.plus(done)
			case 1:
				seconds[i].While = seconds[i].While.plus(done)
			}
		}
	}
}

// disjoint returns the spans in order, and joins those that overlap or touch.
func disjoint(spans []peers.Span) (merged []peers.Span) {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b peers.Span) int { return a.Begin.Compare(b.Begin) })
	for _, s := range spans {
		last := len(merged) - 1
		switch {
		case last < 0 || s.Begin.After(merged[last].End):
			merged = append(merged, s)
		case s.End.After(merged[last].End):
			merged[last].End = s.End
		}
	}
	return merged
}

// covered returns the share of a span that others cover, which are disjoint and in
// order.
func covered(s peers.Span, others []peers.Span) float64 {
	var total time.Duration
	first, _ := slices.BinarySearchFunc(others, s.Begin, func(o peers.Span, t time.Time) int { return o.End.Compare(t) })
	for _, o := range others[first:] {
		if !o.Begin.Before(s.End) {
			break
		}
		if o.Begin.Before(s.Begin) {
			o.Begin = s.Begin
		}
		if o.End.After(s.End) {
			o.End = s.End
		}
		total += o.End.Sub(o.Begin)
	}
	return float64(total) / float64(s.End.Sub(s.Begin))
}
