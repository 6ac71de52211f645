package chart

import (
	"math"
	"slices"
)

// Axis describes one dimension of a plot.
type Axis struct {
	Label string
	Kind  Kind
	// Names are those of the categories of a Categories axis. Category i is at i.
	Names []string
	// Format writes a value; Number by default.
	Format func(float64) string
	// Min and Max, if set, are the ends of the axis. Otherwise these are taken from the
	// marks, and a linear axis begins at zero.
	Min, Max *float64
	// Binary gives a linear axis ticks at powers of two, for bytes.
	Binary bool
	// Free lets a linear axis begin at the smallest value in place of zero, and a logarithmic
	// one end at its values; otherwise this leaves some room for the marks there.
	Free bool

	// above writes the names of the categories of a y axis above their rows, and not beside.
	above bool
}

// Kind is how an axis maps values.
type Kind uint8

const (
	Linear     Kind = iota
	Log2            // powers of two; for values above 0
	Log10           // powers of ten; for values above 0
	Categories      // named values 0, 1, 2 ...
	Tail            // quantiles below 1, drawn at log10 of 1 / (1 - q)
)

// scale maps values to pixels.
type scale struct {
	axis     *Axis
	min, max float64 // after transform
	from, to float64 // pixels
}

// transform makes the axis linear.
func (a *Axis) transform(v float64) float64 {
	switch a.Kind {
	case Log2:
		return math.Log2(v)
	case Log10:
		return math.Log10(v)
	case Tail:
		return -math.Log10(1 - v)
	}
	return v
}

// logRoom is the room at each end of a logarithmic axis, relative to the range of its values.
const logRoom = 0.04

// newScale returns a scale that shows values between low and high.
func newScale(a *Axis, low, high, from, to float64) *scale {
	s := &scale{axis: a, from: from, to: to}
	if a.Kind == Linear && !a.Free {
		low = math.Min(low, 0)
	}
	if a.Min != nil {
		low = *a.Min
	}
	if a.Max != nil {
		high = *a.Max
	}
	if a.Kind == Categories {
		s.min, s.max = -0.5, float64(len(a.Names))-0.5
		return s
	}
	s.min, s.max = a.transform(low), a.transform(high)
	if room := logRoom * (s.max - s.min); room > 0 && !a.Free && (a.Kind == Log2 || a.Kind == Log10) {
		if a.Min == nil {
			s.min -= room
		}
		if a.Max == nil {
			s.max += room
		}
	}
	if !(s.min < s.max) { // also without values
		s.max = s.min + 1
	}
	if math.IsInf(s.min, 0) || math.IsNaN(s.min) || math.IsInf(s.max, 0) || math.IsNaN(s.max) {
		s.min, s.max = 0, 1
	}
	if a.Kind == Linear && a.Max == nil {
		ticks := s.linearTicks()
		if step := ticks[1] - ticks[0]; len(ticks) > 1 && ticks[len(ticks)-1] < s.max {
			s.max = ticks[len(ticks)-1] + step // so that the highest mark is below a tick
		}
	}
	return s
}

// at returns the pixel of a value.
func (s *scale) at(v float64) float64 {
	t := (s.axis.transform(v) - s.min) / (s.max - s.min)
	return s.from + min(max(t, -0.05), 1.05)*(s.to-s.from)
}

// shows reports whether a value lies on the axis.
func (s *scale) shows(v float64) bool {
	t := s.axis.transform(v)
	return t >= s.min-1e-9 && t <= s.max+1e-9
}

// step returns the distance of two categories in pixels.
func (s *scale) step() float64 { return math.Abs(s.to-s.from) / (s.max - s.min) }

type tick struct {
	value float64
	label string
}

// ticks returns values to label.
func (s *scale) ticks() []tick {
	var values []float64
	switch s.axis.Kind {
	case Categories:
		list := make([]tick, len(s.axis.Names))
		for i, name := range s.axis.Names {
			list[i] = tick{float64(i), name}
		}
		return list
	case Log2, Log10:
		values = s.logTicks()
	case Tail:
		return s.tailTicks()
	default:
		values = s.linearTicks()
	}
	format := s.axis.Format
	if format == nil {
		format = Number
	}
	list := make([]tick, len(values))
	for i, v := range values {
		list[i] = tick{v, format(v)}
	}
	return list
}

// linearTicks returns about five round values.
func (s *scale) linearTicks() []float64 {
	const about = 5
	raw := (s.max - s.min) / about
	step := roundStep(raw, s.axis.Binary)
	var values []float64
	for n := math.Ceil(s.min/step - 1e-9); n*step <= s.max*(1+1e-9)+step*1e-9; n++ {
		values = append(values, n*step+0) // never -0
	}
	if len(values) < 2 {
		values = append(values[:0], s.min, s.max)
	}
	return values
}

// roundStep returns the round number that is not below v: 1, 2 or 5 times a power of ten
// or, if binary is set, 1, 2, 4 ... times a power of 1024.
func roundStep(v float64, binary bool) float64 {
	if binary {
		return math.Pow(2, math.Ceil(math.Log2(v)))
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}

// logTicks returns powers of the axis' base, and 2 and 5 times those if there are few.
func (s *scale) logTicks() []float64 {
	base := 10.0
	if s.axis.Kind == Log2 {
		base = 2
	}
	multiples := []float64{1}
	if base == 10 && s.max-s.min < 2.5 {
		multiples = []float64{1, 2, 5}
	}
	var values []float64
	for n := math.Floor(s.min); n <= math.Ceil(s.max); n++ {
		for _, m := range multiples {
			v := m * math.Pow(base, n)
			if t := s.axis.transform(v); t >= s.min-1e-9 && t <= s.max+1e-9 {
				values = append(values, v)
			}
		}
	}
	for len(values) > 12 {
		n := 0
		values = slices.DeleteFunc(values, func(float64) bool { n++; return n%2 == 0 })
	}
	return values
}

// tailTicks returns 0, 90 %, 99 % and so on.
func (s *scale) tailTicks() []tick {
	list := []tick{{0, "0 %"}, {0.5, "50 %"}}
	nines := "9"
	for n := 1.0; n <= s.max+1e-9; n++ {
		q := 1 - math.Pow(10, -n)
		label := "90 %"
		if n > 1 {
			label = "99"
			if n > 2 {
				label += "." + nines[:int(n)-2]
			}
			label += " %"
			nines += "9"
		}
		list = append(list, tick{q, label})
	}
	return slices.DeleteFunc(list, func(t tick) bool {
		v := s.axis.transform(t.value)
		return v < s.min-1e-9 || v > s.max+1e-9
	})
}
