package chart

// Figure is a picture of one or more panels, drawn from the top to the bottom, with one
// common x axis. The zero values of Width and the panels' Height stand for defaults.
type Figure struct {
	Title  string
	X      Axis
	Panels []Panel
	// Note stands below the picture: what was measured, where and how.
	Note []string
	// Width is that of the whole picture, in CSS pixels; by default 760.
	Width float64
}

// Panel is one coordinate system.
type Panel struct {
	Y      Axis
	Marks  []Mark
	Height float64 // of the plot area, in CSS pixels; by default 220
}

// Mark is one thing in a panel: a Line, Area, Boxes, Heat, Bars, Intervals, Rule or
// Shade.
type Mark interface {
	// extent calls x and y for each coordinate that must be visible.
	extent(x, y func(float64))
	draw(p *plot)
	// keys returns the entries of the legend.
	keys() []key
}

// key is an entry of the legend.
type key struct {
	name   string
	series int
	shape  shape
}

type shape uint8

const (
	shapeLine  shape = iota // with markers
	shapePlain              // a line without markers
	shapeDots               // markers alone
	shapeDashed
	shapeFill
)

const (
	defaultWidth  = 760
	defaultHeight = 220
)
