package histogram

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

// Snapshot is the counts of one or several histograms at a moment, or the
// difference of two moments. The zero value is empty.
//
// Not safe for concurrent use. A copy would share its counts: see Clone.
type Snapshot struct {
	_       noCopy
	groups  [groupCount]*group // nil: its counts are zero
	total   uint64
	largest int64 // of everything ever recorded, not of a difference
}

// group is the counts of one power of two. The latencies of a run lie in a few of them.
type group [steps]uint64

// noCopy makes vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// counts returns the counts of a group, to be changed.
func (s *Snapshot) counts(i int) *group {
	if s.groups[i] == nil {
		s.groups[i] = new(group)
	}
	return s.groups[i]
}

// Add adds the counts of h so far. Each concurrent Record is either wholly included or
// not at all.
func (s *Snapshot) Add(h *Histogram) {
	used := bucketOf(uint64(h.largest.Load())) + 1 // a concurrent Record beyond it is not included
	for groups := h.groups.Load(); groups != 0; groups &= groups - 1 {
		i := bits.TrailingZeros64(groups)
		counts := h.counts[i*steps : max(min((i+1)*steps, used), i*steps)]
		var total uint64
		for step := range counts {
			if n := counts[step].Load(); n > 0 { // most are empty
				s.counts(i)[step] += n
				total += n
			}
		}
		s.total += total
	}
	s.largest = max(s.largest, h.largest.Load())
}

// Record counts n durations of at least 0.
func (s *Snapshot) Record(d time.Duration, n uint64) {
	bucket := bucketOf(uint64(d))
	s.counts(bucket / steps)[bucket%steps] += n
	s.total += n
	s.largest = max(s.largest, int64(d))
}

// Merge adds the counts of another snapshot.
func (s *Snapshot) Merge(other *Snapshot) {
	for i, g := range other.groups {
		if g == nil {
			continue
		}
		if s.groups[i] == nil {
			s.groups[i] = new(*g)
			continue
		}
		for step, n := range g {
			s.groups[i][step] += n
		}
	}
	s.total += other.total
	s.largest = max(s.largest, other.largest)
}

// Clone returns a snapshot of the same counts.
func (s *Snapshot) Clone() *Snapshot {
	c := new(Snapshot)
	c.Merge(s)
	return c
}

// Subtract leaves the counts since earlier, a snapshot taken before of the same
// histograms.
func (s *Snapshot) Subtract(earlier *Snapshot) {
	for i, g := range earlier.groups {
		if g == nil {
			continue
		}
		now := s.counts(i)
		if *now == *g { // nothing since
			s.groups[i] = nil
			continue
		}
		for step, n := range g {
			now[step] -= n
		}
	}
	s.total -= earlier.total
}

// Each calls visit for each bucket that holds something, from the smallest durations to
// the largest: the bounds of the bucket, both inclusive, and its count.
func (s *Snapshot) Each(visit func(low, high time.Duration, count uint64)) {
	for i, n := range s.held() {
		low, _ := bucketBounds(i)
		visit(time.Duration(low), s.upperBound(i), n)
	}
}

// held yields each bucket that holds something, in ascending order, and its count.
func (s *Snapshot) held() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for i, g := range s.groups {
			if g == nil {
				continue
			}
			for step, n := range g {
				if n > 0 && !yield(i*steps+step, n) {
					return
				}
			}
		}
	}
}

// Count returns the number of durations.
func (s *Snapshot) Count() uint64 { return s.total }

// Rank returns the nearest rank of the quantile q among count values in ascending order:
// the least rank, from 1 on, such that a share of at least q has that rank or a lower one.
// q is from 0 to 1; count must not be 0.
//
// The float64 of q may be a little above the quantile that was meant, and then its product
// with count above a whole number. Rank takes the float64 below q, as HdrHistogram does.
func Rank(q float64, count uint64) uint64 {
	rank := uint64(math.Ceil(math.Nextafter(q, 0) * float64(count)))
	return min(max(rank, 1), count)
}

// Quantile returns the duration with the nearest rank of q, as the upper bound of its bucket
// (the "highest equivalent value" of HdrHistogram): at most 0.8 % too large, and never too
// small. It is 0 if nothing was counted.
func (s *Snapshot) Quantile(q float64) time.Duration {
	if s.total == 0 {
		return 0
	}
	rank := Rank(q, s.total)
	var seen uint64
	for i, n := range s.held() {
		if seen += n; seen >= rank {
			return s.upperBound(i)
		}
	}
	return time.Duration(s.largest)
}

// Max returns the largest duration: exact if it is the largest ever recorded,
// otherwise as exact as Quantile.
func (s *Snapshot) Max() time.Duration { return s.Quantile(1) }

// Mean returns the average duration to within 0.4 %.
func (s *Snapshot) Mean() time.Duration {
	if s.total == 0 {
		return 0
	}
	var sum float64
	for i, n := range s.held() {
		low, _ := bucketBounds(i)
		sum += float64(n) * (float64(low) + float64(s.upperBound(i))) / 2
	}
	return time.Duration(sum / float64(s.total))
}

// upperBound returns the largest duration that bucket i can hold, given the
// largest one ever recorded.
func (s *Snapshot) upperBound(i int) time.Duration {
	if i == bucketCount-1 {
		return time.Duration(s.largest)
	}
	_, high := bucketBounds(i)
	return time.Duration(min(int64(high), s.largest))
}
