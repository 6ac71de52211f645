package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// ValueSizes is the distribution of the lengths of values: some lengths with weights, or a
// range of which all are equally likely.
type ValueSizes struct {
	Least, Most int          // the range; 0 if Weighted is set
	Weighted    []WeightSize // at most MaxWeightedSizes
}

// WeightSize is a length with its weight among others.
type WeightSize struct{ Bytes, Weight int }

// MaxWeightedSizes bounds ValueSizes.Weighted, through which each draw walks.
const MaxWeightedSizes = 16

// ParseValueSizes reads "1024", "100..4000" (a range) or "100:90,4000:10" (90 of 100 values
// have 100 bytes, the others 4000).
func ParseValueSizes(s string) (*ValueSizes, error) {
	sizes := new(ValueSizes)
	least, most, isRange := strings.Cut(s, "..")
	switch {
	case isRange:
		var errs [2]error
		sizes.Least, errs[0] = strconv.Atoi(least)
		sizes.Most, errs[1] = strconv.Atoi(most)
		if errs[0] != nil || errs[1] != nil || sizes.Least > sizes.Most {
			return nil, badValueSizes(s)
		}
	case strings.Contains(s, ":"):
		for part := range strings.SplitSeq(s, ",") {
			bytes, weight, _ := strings.Cut(part, ":")
			n, err := strconv.Atoi(bytes)
			w, weightErr := strconv.Atoi(weight)
			if err != nil || weightErr != nil || w < 1 || w > 1_000_000 {
				return nil, badValueSizes(s)
			}
			sizes.Weighted = append(sizes.Weighted, WeightSize{n, w})
		}
		if len(sizes.Weighted) > MaxWeightedSizes {
			return nil, fmt.Errorf("value sizes %q: want at most %d sizes with weights", s, MaxWeightedSizes)
		}
	default:
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, badValueSizes(s)
		}
		sizes.Least, sizes.Most = n, n
	}
	return sizes, nil
}

func badValueSizes(s string) error {
	return fmt.Errorf("value sizes %q: want a number of bytes such as 1024, a range such as 100..4000, or sizes with weights such as 100:90,4000:10", s)
}

// Fixed returns a distribution with one length.
func Fixed(bytes int) *ValueSizes { return &ValueSizes{Least: bytes, Most: bytes} }

func (s *ValueSizes) String() string {
	switch {
	case len(s.Weighted) > 0:
		parts := make([]string, len(s.Weighted))
		for i, w := range s.Weighted {
			parts[i] = strconv.Itoa(w.Bytes) + ":" + strconv.Itoa(w.Weight)
		}
		return strings.Join(parts, ",")
	case s.Least == s.Most:
		return strconv.Itoa(s.Most)
	}
	return fmt.Sprintf("%d..%d", s.Least, s.Most)
}

// Set makes ValueSizes a flag.
func (s *ValueSizes) Set(text string) error {
	sizes, err := ParseValueSizes(text)
	if err == nil {
		*s = *sizes
	}
	return err
}

// Type is the kind of the flag.
func (s *ValueSizes) Type() string { return "sizes" }

// Bounds returns the smallest and the largest length.
func (s *ValueSizes) Bounds() (least, most int) {
	if len(s.Weighted) == 0 {
		return s.Least, s.Most
	}
	least, most = s.Weighted[0].Bytes, s.Weighted[0].Bytes
	for _, w := range s.Weighted {
		least, most = min(least, w.Bytes), max(most, w.Bytes)
	}
	return least, most
}

// Mean returns the mean length.
func (s *ValueSizes) Mean() float64 {
	if len(s.Weighted) == 0 {
		return float64(s.Least+s.Most) / 2
	}
	sum := 0.0
	for _, w := range s.Weighted {
		sum += float64(w.Bytes) * float64(w.Weight)
	}
	return sum / float64(s.weights())
}

func (s *ValueSizes) weights() int {
	total := 0
	for _, w := range s.Weighted {
		total += w.Weight
	}
	return total
}

// draw returns the length of the next value. It draws no number if there is one length, so
// that runs with fixed sizes draw the operations that they always have.
func (s *ValueSizes) draw(rng *rand.Rand) int {
	if len(s.Weighted) == 0 {
		if s.Least == s.Most {
			return s.Most
		}
		return s.Least + rng.IntN(s.Most-s.Least+1)
	}
	n := rng.IntN(s.weights())
	for _, w := range s.Weighted {
		if n -= w.Weight; n < 0 {
			return w.Bytes
		}
	}
	panic("workload: a draw beyond the sum of the weights")
}
