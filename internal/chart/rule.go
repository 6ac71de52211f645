package chart

// Rule is a dashed line across the panel, vertical at X or horizontal at Y.
type Rule struct {
	X, Y *float64 // one of the two
	Name string   // written beside the line
}

func (r *Rule) extent(x, y func(float64)) {
	if r.X != nil {
		x(*r.X)
	}
	if r.Y != nil {
		y(*r.Y)
	}
}

func (r *Rule) keys() []key { return nil }

func (r *Rule) draw(p *plot) {
	if r.X != nil {
		x := p.x.at(*r.X)
		p.line("r", x, p.top, x, p.top+p.height)
		if need := textWidth(r.Name) + 6; x+need > p.left+p.width {
			p.text("d", "end", x-6, p.top+12, r.Name)
		} else {
			p.text("d", "start", x+6, p.top+12, r.Name)
		}
		return
	}
	y := p.y.at(*r.Y)
	p.line("r", p.left, y, p.left+p.width, y)
	p.text("d", "end", p.left+p.width-4, y-5, r.Name)
}

// Reference is a dashed series to compare with, such as ideal scaling, or the
// published figures of another system.
type Reference struct {
	Name string // in the legend; empty: not there
	X, Y []float64
}

func (r *Reference) extent(x, y func(float64)) {
	for i := range r.X {
		x(r.X[i])
		y(r.Y[i])
	}
}

func (r *Reference) keys() []key {
	if r.Name == "" {
		return nil
	}
	return []key{{r.Name, 0, shapeDashed}}
}

func (r *Reference) draw(p *plot) {
	p.path("r", path(p.unbroken(r.X, r.Y), false), r.Name)
}

// Shade colours a stretch of the x axis, for example a stall: what the axis shows of it.
type Shade struct {
	From, To float64
	Name     string // shown when the pointer rests on it
}

func (s *Shade) extent(_, _ func(float64)) {}
func (s *Shade) keys() []key               { return nil }

func (s *Shade) draw(p *plot) {
	left, right := p.left, p.left+p.width
	from, to := max(p.x.at(s.From), left), min(p.x.at(s.To), right)
	if from >= right || to <= left {
		return
	}
	p.rect("sh", from, p.top, max(to-from, 1), p.height, s.Name)
}

// Intervals is a forest plot: for each category of the y axis an estimate with its
// interval along the x axis.
type Intervals struct {
	Rows []Interval
}

// Interval is an estimate.
type Interval struct {
	Row            int // a category of the y axis
	Low, Mid, High float64
	// LowCut and HighCut: the interval goes on beyond Low or High, which an arrow shows.
	LowCut, HighCut bool
	Series          int
}

func (v *Intervals) extent(x, _ func(float64)) {
	for _, r := range v.Rows {
		around := (r.High - r.Low) / 10 // so that no interval touches the end of the axis
		x(r.Low - around)
		x(r.High + around)
	}
}

func (v *Intervals) keys() []key { return nil }

func (v *Intervals) draw(p *plot) {
	for _, r := range v.Rows {
		y := p.y.at(float64(r.Row))
		class := seriesClass(r.Series)
		p.line("w "+class, p.x.at(r.Low), y, p.x.at(r.High), y)
		p.intervalEnd(class, p.x.at(r.Low), y, -1, r.LowCut)
		p.intervalEnd(class, p.x.at(r.High), y, 1, r.HighCut)
		p.marker(r.Series, p.x.at(r.Mid), y, p.y.describe(float64(r.Row))+": "+p.x.describe(r.Mid)+" ("+p.x.describe(r.Low)+" to "+p.x.describe(r.High)+")")
	}
}

// intervalEnd draws a bar across the end of an interval or, if that is cut off, an arrow in its
// direction, -1 or 1.
func (p *plot) intervalEnd(class string, x, y, direction float64, cut bool) {
	if cut {
		p.path("m "+class, path([][]point{{{x + 5*direction, y}, {x - 2*direction, y - 4}, {x - 2*direction, y + 4}}}, true), "")
		return
	}
	p.line("w "+class, x, y-4, x, y+4)
}
