package chart

// Bars are vertical bars, grouped at each x value or, if stacked, on top of each other.
type Bars struct {
	X       []float64
	Layers  []Layer
	Stacked bool
}

func (b *Bars) extent(x, y func(float64)) {
	y(0)
	for _, v := range b.X {
		x(v)
	}
	for i := range b.X {
		sum := 0.0
		for _, l := range b.Layers {
			sum += l.Y[i]
			y(l.Y[i])
		}
		if b.Stacked {
			y(sum)
		}
	}
}

func (b *Bars) keys() []key {
	var keys []key
	for _, l := range b.Layers {
		if l.Name != "" {
			keys = append(keys, key{l.Name, l.Series, shapeFill})
		}
	}
	return keys
}

func (b *Bars) draw(p *plot) {
	groups := len(b.Layers)
	if b.Stacked {
		groups = 1
	}
	pitch := min(p.x.step()*0.8/float64(groups), 60)
	for i, x := range b.X {
		below := 0.0
		for n, l := range b.Layers {
			shift := float64(n) - float64(groups-1)/2
			if b.Stacked {
				shift = 0
			}
			top, bottom := p.y.at(below+l.Y[i]), p.y.at(below)
			p.rect("f "+seriesClass(l.Series), p.x.at(x)+(shift-0.45)*pitch, top, pitch*0.9, bottom-top, p.title(l.Name, x, l.Y[i]))
			if b.Stacked {
				below += l.Y[i]
			}
		}
	}
}
