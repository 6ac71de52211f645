package chart

import (
	"fmt"
	"math"
)

// Heat is a grid of cells whose colour grows with the logarithm of a count.
type Heat struct {
	X     []float64   // edges of the columns, ascending: one more than columns
	Y     []float64   // edges of the rows, ascending: one more than rows
	Count [][]float64 // by column and row; 0 is not drawn
	Of    string      // what is counted
}

func (h *Heat) extent(x, y func(float64)) {
	for _, v := range h.X {
		x(v)
	}
	for _, column := range h.Count {
		for row, n := range column {
			if n > 0 {
				y(h.Y[row])
				y(h.Y[row+1])
			}
		}
	}
}

func (h *Heat) keys() []key { return nil }

func (h *Heat) draw(p *plot) {
	most := 1.0
	for _, column := range h.Count {
		for _, n := range column {
			most = max(most, n)
		}
	}
	for i, column := range h.Count {
		left, right := p.x.at(h.X[i]), p.x.at(h.X[i+1])
		for row, n := range column {
			if n <= 0 {
				continue
			}
			bottom, top := p.y.at(h.Y[row]), p.y.at(h.Y[row+1])
			fmt.Fprintf(p, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"`,
				px(left), px(top), px(right-left+0.3), px(bottom-top+0.3), ramp(math.Log1p(n)/math.Log1p(most)))
			p.end("rect", fmt.Sprintf("%s, %s: %s %s", p.x.describe(h.X[i]), p.y.describe(h.Y[row]), Number(n), h.Of))
		}
	}
	h.drawRamp(p, most)
}

// drawRamp explains the colours above the plot's right end.
func (h *Heat) drawRamp(p *plot, most float64) {
	const steps, width = 12, 8
	label := Number(most) + " " + h.Of
	x := p.left + p.width - textWidth(label) - steps*width - 10
	for i := range steps {
		fmt.Fprintf(p, `<rect x="%s" y="%s" width="%d" height="8" fill="%s"/>`+"\n", px(x+float64(i*width)), px(p.top-12), width, ramp(float64(i+1)/steps))
	}
	p.text("n", "start", x+steps*width+6, p.top-4, label)
	p.text("n", "end", x-5, p.top-4, "1")
}

// rampStops are colours of equal perceived distance, from few to many: the map "viridis"
// of Smith and van der Walt (2015).
var rampStops = [][3]float64{{68, 1, 84}, {71, 44, 122}, {59, 81, 139}, {44, 113, 142}, {33, 144, 141}, {39, 173, 129}, {92, 200, 99}, {170, 220, 50}, {253, 231, 37}}

// ramp returns the colour of a value from 0 to 1.
func ramp(v float64) string {
	at := min(max(v, 0), 1) * float64(len(rampStops)-1)
	i := min(int(at), len(rampStops)-2)
	var rgb [3]int
	for c := range rgb {
		rgb[c] = int(math.Round(rampStops[i][c] + (at-float64(i))*(rampStops[i+1][c]-rampStops[i][c])))
	}
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
}
