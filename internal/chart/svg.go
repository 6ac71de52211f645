package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// canvas collects the elements of an SVG.
type canvas struct{ strings.Builder }

// px writes a coordinate with one decimal at most.
func px(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, px(x1), px(y1), px(x2), px(y2))
}

func (c *canvas) rect(class string, x, y, width, height float64, title string) {
	fmt.Fprintf(c, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, px(x), px(y), px(max(width, 0)), px(max(height, 0)))
	c.end("rect", title)
}

// end closes an element, with a title if there is one.
func (c *canvas) end(element, title string) {
	if title == "" {
		c.WriteString("/>\n")
		return
	}
	fmt.Fprintf(c, "><title>%s</title></%s>\n", html.EscapeString(title), element)
}

type point struct{ x, y float64 }

// path writes the points of one or more unbroken lines.
func path(lines [][]point, closed bool) string {
	var b strings.Builder
	for _, line := range lines {
		for i, p := range line {
			command := "L"
			if i == 0 {
				command = "M"
			}
			b.WriteString(command + px(p.x) + " " + px(p.y))
		}
		if closed && len(line) > 0 {
			b.WriteString("Z")
		}
	}
	return b.String()
}

func (c *canvas) path(class, d, title string) {
	if d == "" {
		return
	}
	fmt.Fprintf(c, `<path class="%s" d="%s"`, class, d)
	c.end("path", title)
}

// text writes text. anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(c, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`+"\n", class, anchor, px(x), px(y), html.EscapeString(s))
}

// upright writes text that runs upwards, centred at y.
func (c *canvas) upright(class string, x, y float64, s string) {
	fmt.Fprintf(c, `<text class="%s" text-anchor="middle" transform="translate(%s %s) rotate(-90)">%s</text>`+"\n", class, px(x), px(y), html.EscapeString(s))
}

// marker draws the marker of a series.
func (c *canvas) marker(series int, x, y float64, title string) {
	const r = 3.5
	class := "m " + seriesClass(series)
	switch series % 4 {
	case 0:
		fmt.Fprintf(c, `<circle class="%s" cx="%s" cy="%s" r="%s"`, class, px(x), px(y), px(r))
		c.end("circle", title)
	case 1:
		c.rect(class, x-r, y-r, 2*r, 2*r, title)
	case 2:
		c.path(class, path([][]point{{{x, y - r - 1}, {x + r + 0.5, y + r}, {x - r - 0.5, y + r}}}, true), title)
	default:
		c.path(class, path([][]point{{{x, y - r - 1}, {x + r + 1, y}, {x, y + r + 1}, {x - r - 1, y}}}, true), title)
	}
}

const seriesCount = 8

func seriesClass(series int) string { return "s" + strconv.Itoa(series%seriesCount) }

// textWidth estimates the width of text in a 12 px sans-serif font, rather too wide.
func textWidth(s string) float64 {
	width := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("ijlt.,:;|!'() 1fr", r):
			width += 4.5
		case strings.ContainsRune("mwMW%—", r):
			width += 10.5
		case r >= 'A' && r <= 'Z':
			width += 8.5
		default:
			width += 7
		}
	}
	return width
}

// CSS is the style of all figures. A figure contains it unless it is drawn by Inline.
const CSS = `.kvc{--bg:#fff;--fg:#1a1a1a;--dim:#5c5c5c;--grid:#e3e3e3;--axis:#8a8a8a;--shade:#d55e00;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#cc79a7;--s4:#b8860b;--s5:#56b4e9;--s6:#7f3c8d;--s7:#4d4d4d;
font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
@media (prefers-color-scheme:dark){.kvc{--bg:#16181c;--fg:#e8e8e8;--dim:#a6a6a6;--grid:#2e3238;--axis:#7d8590;--shade:#ff9d5c;
--s0:#5ab4f0;--s1:#ff8f4d;--s2:#3fd3a2;--s3:#e8a5c9;--s4:#e6b94d;--s5:#8fd3ff;--s6:#c792ea;--s7:#bdbdbd}}
.kvc .bg{fill:var(--bg)}.kvc text{fill:var(--fg)}.kvc .t{font-size:15px;font-weight:600}.kvc .d{fill:var(--dim)}.kvc .n{fill:var(--dim);font-size:11px}
.kvc .o{paint-order:stroke;stroke:var(--bg);stroke-width:4px}
.kvc .g{stroke:var(--grid);stroke-width:1}.kvc .a{stroke:var(--axis);stroke-width:1}
.kvc .l{fill:none;stroke-width:2;stroke-linejoin:round}.kvc .r{fill:none;stroke:var(--dim);stroke-width:1.2;stroke-dasharray:5 4}
.kvc .band{opacity:.16;stroke:none}.kvc .f{opacity:.75;stroke:none}.kvc .m{stroke:var(--bg);stroke-width:1}.kvc .dot{opacity:.7}
.kvc .box{fill-opacity:.28;stroke-width:1.4}.kvc .w{stroke-width:1.4}.kvc .sh{fill:var(--shade);opacity:.13}.kvc .dash{stroke-dasharray:7 4}
.kvc .s0{fill:var(--s0);stroke:var(--s0)}.kvc .s1{fill:var(--s1);stroke:var(--s1)}.kvc .s2{fill:var(--s2);stroke:var(--s2)}.kvc .s3{fill:var(--s3);stroke:var(--s3)}
.kvc .s4{fill:var(--s4);stroke:var(--s4)}.kvc .s5{fill:var(--s5);stroke:var(--s5)}.kvc .s6{fill:var(--s6);stroke:var(--s6)}.kvc .s7{fill:var(--s7);stroke:var(--s7)}
.kvc .l.s0,.kvc .l.s1,.kvc .l.s2,.kvc .l.s3,.kvc .l.s4,.kvc .l.s5,.kvc .l.s6,.kvc .l.s7{fill:none}
.kvc .f.s0,.kvc .f.s1,.kvc .f.s2,.kvc .f.s3,.kvc .f.s4,.kvc .f.s5,.kvc .f.s6,.kvc .f.s7,.kvc .band{stroke:none}
.kvc .m.s0,.kvc .m.s1,.kvc .m.s2,.kvc .m.s3,.kvc .m.s4,.kvc .m.s5,.kvc .m.s6,.kvc .m.s7{stroke:var(--bg)}
`
