package chart

// Boxes are box plots beside each other: the box from the first to the third quartile,
// whiskers from the 1st to the 99th percentile, a tick at the maximum, and Dots, such as the
// single values if there are few. The caption has to say so.
type Boxes struct {
	Name   string
	Series int
	Boxes  []Box
	// Of and Shift place this group of boxes among Of groups at each x value.
	Of, Shift int
}

// Box summarizes values at one x.
type Box struct {
	X                      float64
	P1, P25, P50, P75, P99 float64
	Max                    float64
	Dots                   []float64
}

func (b *Boxes) extent(x, y func(float64)) {
	for i := range b.Boxes {
		box := &b.Boxes[i]
		x(box.X)
		for _, v := range append([]float64{box.P1, box.P99, box.Max}, box.Dots...) {
			y(v)
		}
	}
}

func (b *Boxes) keys() []key {
	if b.Name == "" {
		return nil
	}
	return []key{{b.Name, b.Series, shapeFill}}
}

func (b *Boxes) draw(p *plot) {
	groups := max(b.Of, 1)
	pitch := min(p.x.step()*0.8/float64(groups), 44)
	width := pitch * 0.7
	class := seriesClass(b.Series)
	for i := range b.Boxes {
		box := &b.Boxes[i]
		x := p.x.at(box.X) + (float64(b.Shift)-float64(groups-1)/2)*pitch
		at := p.y.at
		p.line("w "+class, x, at(box.P1), x, at(box.P25))
		p.line("w "+class, x, at(box.P75), x, at(box.P99))
		for _, end := range []float64{box.P1, box.P99} {
			p.line("w "+class, x-width/4, at(end), x+width/4, at(end))
		}
		title := p.title(b.Name, box.X, box.P50) + " (p25 " + p.y.describe(box.P25) + ", p75 " + p.y.describe(box.P75) +
			", p99 " + p.y.describe(box.P99) + ", max " + p.y.describe(box.Max) + ")"
		p.rect("box "+class, x-width/2, at(box.P75), width, at(box.P25)-at(box.P75), title)
		p.line("w "+class, x-width/2, at(box.P50), x+width/2, at(box.P50))
		p.line("w "+class, x-width/3, at(box.Max), x+width/3, at(box.Max))
		for _, dot := range box.Dots {
			p.marker(b.Series, x, at(dot), p.title(b.Name, box.X, dot))
		}
	}
}
