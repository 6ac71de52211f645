package chart

import (
	"math"
	"strconv"
	"strings"
)

// Line is a series of points, joined by lines. A NaN interrupts the line.
type Line struct {
	Name   string // in the legend; empty: not there
	Series int    // chooses colour, dash and marker
	X, Y   []float64
	// Low and High, if set, are the ends of a band around the line, such as the least and
	// the most of several runs.
	Low, High []float64
	// Plain omits the markers, for lines of many points; Dots omits the line.
	Plain, Dots bool
}

func (l *Line) extent(x, y func(float64)) {
	for i := range l.X {
		x(l.X[i])
		y(l.Y[i])
		if l.Low != nil {
			y(l.Low[i])
			y(l.High[i])
		}
	}
}

func (l *Line) keys() []key {
	if l.Name == "" {
		return nil
	}
	shape := shapeLine
	if l.Plain {
		shape = shapePlain
	} else if l.Dots {
		shape = shapeDots
	}
	return []key{{l.Name, l.Series, shape}}
}

func (l *Line) draw(p *plot) {
	class := seriesClass(l.Series)
	if l.Low != nil {
		p.path("band "+class, path([][]point{p.between(l.X, l.Low, l.High)}, true), "")
	}
	if !l.Dots {
		p.path("l "+class+dash(l.Series), path(p.unbroken(l.X, l.Y), false), "")
	}
	if l.Plain {
		return
	}
	for i := range l.X {
		if !math.IsNaN(l.Y[i]) && p.x.shows(l.X[i]) {
			p.marker(l.Series, p.x.at(l.X[i]), p.y.at(l.Y[i]), p.title(l.Name, l.X[i], l.Y[i]))
		}
	}
}

// unbroken returns the points, in pixels, of the stretches without NaN that the axis
// shows.
func (p *plot) unbroken(x, y []float64) [][]point {
	var lines [][]point
	open := false
	for i := range x {
		if math.IsNaN(y[i]) || !p.x.shows(x[i]) {
			open = false
			continue
		}
		if !open {
			lines = append(lines, nil)
			open = true
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], point{p.x.at(x[i]), p.y.at(y[i])})
	}
	return lines
}

// between returns the outline of an area between two lines.
func (p *plot) between(x, low, high []float64) []point {
	var outline []point
	for i := range x {
		if p.x.shows(x[i]) {
			outline = append(outline, point{p.x.at(x[i]), p.y.at(high[i])})
		}
	}
	for i := len(x) - 1; i >= 0; i-- {
		if !p.x.shows(x[i]) {
			continue
		}
		outline = append(outline, point{p.x.at(x[i]), p.y.at(low[i])})
	}
	return outline
}

// title describes a point.
func (p *plot) title(name string, x, y float64) string {
	parts := make([]string, 0, 3)
	if name != "" {
		parts = append(parts, name)
	}
	return strings.Join(append(parts, p.x.describe(x), p.y.describe(y)), ", ")
}

// describe writes a value of the axis.
func (s *scale) describe(v float64) string {
	switch {
	case s.axis.Kind == Categories && int(v) >= 0 && int(v) < len(s.axis.Names):
		return s.axis.Names[int(v)]
	case s.axis.Kind == Tail:
		return "p" + strconv.FormatFloat(100*v, 'g', 8, 64)
	case s.axis.Format != nil:
		return s.axis.Format(v)
	}
	return Number(v)
}

// Area is a stack of series over common x values: the first is at the bottom.
type Area struct {
	X      []float64
	Layers []Layer
}

// Layer is one series of an Area.
type Layer struct {
	Name   string
	Series int
	Y      []float64
}

// tops returns the upper ends of the layers.
func (a *Area) tops() [][]float64 {
	tops := make([][]float64, len(a.Layers))
	below := make([]float64, len(a.X))
	for n, layer := range a.Layers {
		tops[n] = make([]float64, len(a.X))
		for i := range a.X {
			tops[n][i] = below[i] + layer.Y[i]
		}
		below = tops[n]
	}
	return tops
}

func (a *Area) extent(x, y func(float64)) {
	for _, v := range a.X {
		x(v)
	}
	y(0)
	for _, top := range a.tops() {
		for _, v := range top {
			y(v)
		}
	}
}

func (a *Area) keys() []key {
	keys := make([]key, len(a.Layers))
	for i, l := range a.Layers {
		keys[i] = key{l.Name, l.Series, shapeFill}
	}
	return keys
}

func (a *Area) draw(p *plot) {
	below := make([]float64, len(a.X))
	for n, top := range a.tops() {
		p.path("f "+seriesClass(a.Layers[n].Series), path([][]point{p.between(a.X, below, top)}, true), a.Layers[n].Name)
		below = top
	}
}
