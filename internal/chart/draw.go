package chart

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The layout, in CSS pixels.
const (
	marginTop    = 14
	titleHeight  = 22
	legendRow    = 18
	rightMargin  = 24
	tickHeight   = 18 // labels below the x axis
	labelHeight  = 18 // the label of the x axis
	heatLegend   = 16 // the colours above a panel, below its other keys
	noteRow      = 15
	panelGap     = 16
	yLabelWidth  = 20
	tickDistance = 7  // between a tick's label and the axis
	tickRow      = 14 // of a label below the x axis that has several
	labelGap     = 8  // between labels beside each other there
	leastGap     = 4  // ... of which one cannot be broken

	// Sizes of text. The title is bold, so it is as wide as text of 16.
	titleSize = 16
	textSize  = 12
	noteSize  = 11
)

// slimWidth is the width of a telephone, without the margins of a page.
const slimWidth = 358

// slimRow is the height of a row with its name above.
const slimRow = 34

// plot is one panel while it is drawn.
type plot struct {
	*canvas
	x, y                     *scale
	left, top, width, height float64
}

// SVG returns the figure as a document of its own.
func (f *Figure) SVG() string { return f.render(true) }

// Inline returns the figure for a page that has CSS.
func (f *Figure) Inline() string { return f.render(false) }

// Slim returns the figure for a page that has CSS, as narrow as a telephone: "" if the figure has
// a width of its own. Names at the y axis stand above their rows.
func (f *Figure) Slim() string {
	if f.Width != 0 {
		return ""
	}
	slim := *f
	slim.Width = slimWidth
	slim.Panels = slices.Clone(f.Panels)
	for i := range slim.Panels {
		if p := &slim.Panels[i]; p.Y.Kind == Categories {
			p.Y.above, p.Height = true, slimRow*float64(len(p.Y.Names))+slimRow/2
		}
	}
	return slim.Inline()
}

func (f *Figure) render(style bool) string {
	width := f.Width
	if width == 0 {
		width = defaultWidth
	}
	var body canvas
	y := float64(marginTop)
	for _, row := range wrap(f.Title, width-24, titleSize) {
		y += titleHeight
		body.text("t", "start", 12, y-6, row)
	}
	left := f.leftMargin()
	area := width - left - rightMargin
	x := f.xScale(left, left+area)
	for i := range f.Panels {
		y = f.Panels[i].draw(&body, x, left, y, area, i == len(f.Panels)-1)
	}
	if f.X.Label != "" {
		body.text("d", "middle", left+area/2, y+12, f.X.Label)
		y += labelHeight
	}
	for _, note := range f.Note {
		for _, row := range wrap(note, width-24, noteSize) {
			y += noteRow
			body.text("n", "start", 12, y, row)
		}
	}
	y += 10
	var c canvas
	fmt.Fprintf(&c, `<svg xmlns="http://www.w3.org/2000/svg" class="kvc" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`+"\n",
		px(width), px(y), px(width), px(y), html.EscapeString(f.Title))
	if style {
		c.WriteString("<style>\n" + CSS + "</style>\n")
	}
	c.rect("bg", 0, 0, width, y, "")
	c.WriteString(body.String())
	c.WriteString("</svg>\n")
	return c.String()
}

// span is the range of values of some marks.
type span struct{ low, high float64 }

func newSpan() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) include(v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
}

func ignore(float64) {}

func (f *Figure) xScale(from, to float64) *scale {
	s := newSpan()
	for i := range f.Panels {
		for _, m := range f.Panels[i].Marks {
			m.extent(s.include, ignore)
		}
	}
	axis := f.X
	axis.Free = true // an x axis shows its values, and no more
	if axis.Max == nil && axis.Kind == Linear && s.low < s.high {
		axis.Max = &s.high
	}
	return newScale(&axis, s.low, s.high, from, to)
}

func (p *Panel) yScale(from, to float64) *scale {
	s := newSpan()
	for _, m := range p.Marks {
		m.extent(ignore, s.include)
	}
	return newScale(&p.Y, s.low, s.high, from, to)
}

// leftMargin is as wide as the widest label of a y axis.
func (f *Figure) leftMargin() float64 {
	widest := 30.0
	for i := range f.Panels {
		if f.Panels[i].Y.above {
			continue
		}
		for _, t := range f.Panels[i].yScale(1, 0).ticks() {
			widest = max(widest, textWidth(t.label))
		}
	}
	return yLabelWidth + widest + tickDistance + 6
}

func (p *Panel) height() float64 {
	if p.Height == 0 {
		return defaultHeight
	}
	return p.Height
}

// draw draws the panel below top and returns where the next begins. The last panel has
// the labels of the x axis.
func (p *Panel) draw(c *canvas, x *scale, left, top, width float64, last bool) float64 {
	top = p.legend(c, left, top, width)
	height := p.height()
	d := &plot{canvas: c, x: x, y: p.yScale(top+height, top), left: left, top: top, width: width, height: height}
	d.yAxis()
	for _, m := range p.Marks {
		m.draw(d)
	}
	if d.y.axis.above {
		for _, t := range d.y.ticks() {
			d.text("d o", "start", 12, d.y.at(t.value)-8, t.label)
		}
	}
	bottom := top + height
	d.line("a", left, bottom, left+width, bottom)
	if !last {
		return bottom + panelGap
	}
	return bottom + tickHeight + tickRow*float64(d.xAxis(bottom)-1)
}

func (d *plot) yAxis() {
	for _, t := range d.y.ticks() {
		y := d.y.at(t.value)
		d.line("g", d.left, y, d.left+d.width, y)
		if !d.y.axis.above {
			d.text("d", "end", d.left-tickDistance, y+4, t.label)
		}
	}
	if label := d.y.axis.Label; label != "" {
		d.upright("d", 14, d.top+d.height/2, label)
	}
}

// xAxis labels as many ticks as fit beside each other, and all categories. It returns how many rows
// the labels have at most.
func (d *plot) xAxis(y float64) int {
	ticks := d.x.ticks()
	labels := make([][]string, len(ticks))
	for i, t := range ticks {
		labels[i] = []string{t.label}
	}
	if d.x.axis.Kind == Categories {
		labels = breakNames(d.x.axis.Names, d.x.step())
	}
	end, most := math.Inf(-1), 1
	for i, t := range ticks {
		x, half := d.x.at(t.value), widest(labels[i])/2
		d.line("a", x, y, x, y+4)
		if d.x.axis.Kind == Categories || x-half >= end && x+half <= d.left+d.width+rightMargin {
			for row, text := range labels[i] {
				d.text("d", "middle", x, y+16+tickRow*float64(row), text)
			}
			end = x + half + labelGap
			most = max(most, len(labels[i]))
		}
	}
	return most
}

// widest returns the width of the widest row.
func widest(rows []string) (width float64) {
	for _, row := range rows {
		width = max(width, textWidth(row))
	}
	return width
}

// breakNames breaks the names of columns beside each other into rows, each so that they are labelGap
// apart. A part that cannot be broken, and is wider than its column, may reach into the next one; if it
// would come closer than leastGap to the name there, the wider one of the two is broken anywhere, and if
// need be both. So is the last one if it would leave the figure.
func breakNames(names []string, step float64) [][]string {
	labels := make([][]string, len(names))
	for i, name := range names {
		labels[i] = breakName(name, step-labelGap)
	}
	tooClose := func(i int) bool { return widest(labels[i-1])/2+widest(labels[i])/2+leastGap > step }
	for i := 1; i < len(labels); i++ {
		wider, other := i-1, i
		if widest(labels[i]) > widest(labels[i-1]) {
			wider, other = i, i-1
		}
		for _, n := range []int{wider, other} {
			if tooClose(i) {
				labels[n] = breakAnywhere(labels[n], step-leastGap)
			}
		}
	}
	if last := len(labels) - 1; last >= 0 && widest(labels[last]) > step+2*rightMargin {
		labels[last] = breakAnywhere(labels[last], step-leastGap)
	}
	return labels
}

// breakAnywhere breaks the rows that are wider than a column.
func breakAnywhere(rows []string, width float64) (broken []string) {
	for _, row := range rows {
		broken = append(broken, pack(strings.Split(row, ""), "", func(row string) bool { return textWidth(row) <= width })...)
	}
	return broken
}

// legend writes the names of the panel's series, in rows, and returns where the plot
// area begins.
func (p *Panel) legend(c *canvas, left, top, width float64) float64 {
	var keys []key
	for _, m := range p.Marks {
		keys = append(keys, m.keys()...)
	}
	heat := 0.0
	if slices.ContainsFunc(p.Marks, func(m Mark) bool { _, ok := m.(*Heat); return ok }) {
		heat = heatLegend
	}
	if len(keys) == 0 {
		return top + max(heat, 6)
	}
	const symbol, gap = 26, 16
	x, y := left, top+12
	for _, k := range keys {
		need := symbol + textWidth(k.name) + gap
		if x > left && x+need > left+width {
			x, y = left, y+legendRow
		}
		c.symbol(k, x, y-4)
		for i, row := range wrap(k.name, width-symbol, textSize) { // several only if the next name is below anyhow
			if i > 0 {
				y += legendRow
			}
			c.text("d", "start", x+symbol, y, row)
		}
		x += need
	}
	return y + 10 + heat
}

func (c *canvas) symbol(k key, x, y float64) {
	class := seriesClass(k.series)
	switch k.shape {
	case shapeFill:
		c.rect("f "+class, x+4, y-5, 14, 10, "")
	case shapeDashed:
		c.line("r", x, y, x+20, y)
	case shapePlain:
		c.line("l "+class+dash(k.series), x, y, x+20, y)
	case shapeDots:
		c.marker(k.series, x+10, y, "")
	default:
		c.line("l "+class+dash(k.series), x, y, x+20, y)
		c.marker(k.series, x+10, y, "")
	}
}

// dash returns the class of a dashed line for every other series.
func dash(series int) string {
	if series%2 == 1 {
		return " dash"
	}
	return ""
}

// wrap breaks text of a size into rows, at spaces.
func wrap(s string, width, size float64) []string {
	return pack(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ", func(row string) bool { return textWidth(row)*size/textSize <= width })
}

// breakName breaks a name that is wider than a column into rows, after spaces, underscores and
// hyphens, but not between a number and its unit.
func breakName(name string, width float64) []string {
	fits := func(row string) bool { return textWidth(row) <= width }
	if fits(name) {
		return []string{name}
	}
	var parts []string
	number := false
	for _, word := range strings.Fields(name) {
		if number {
			parts[len(parts)-1] += word + " "
			number = false
			continue
		}
		number = word[0] >= '0' && word[0] <= '9'
		for word != "" {
			end := strings.IndexAny(word[:len(word)-1], "_-") + 1
			if end == 0 {
				end = len(word)
			}
			parts, word = append(parts, word[:end]), word[end:]
		}
		parts[len(parts)-1] += " "
	}
	rows := pack(parts, "", func(row string) bool { return fits(strings.TrimSpace(row)) })
	for i := range rows {
		rows[i] = strings.TrimSpace(rows[i])
	}
	return rows
}

// pack joins as many parts as fit to each row, at least one.
func pack(parts []string, separator string, fits func(row string) bool) []string {
	var rows []string
	for _, part := range parts {
		last := len(rows) - 1
		if last >= 0 && fits(rows[last]+separator+part) {
			rows[last] += separator + part
		} else {
			rows = append(rows, part)
		}
	}
	return rows
}
