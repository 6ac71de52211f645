package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// Page is a report.
type Page struct {
	Title  string
	Lead   string // what was asked, and the answer in a sentence
	Result *results.Result
	// Before is what Result is compared with; nil if it is not.
	Before   *results.Result
	Sections []Section
}

// Section is a part of a report.
type Section struct {
	Title   string
	Text    []string // paragraphs
	Tables  []*Table
	Figures []*chart.Figure
	// Narrow figures, of NarrowWidth, stand beside each other.
	Narrow bool
}

// NarrowWidth is the width of figures of which two stand beside each other.
const NarrowWidth = 376

// Table is a table whose cells may be shaded by their value.
type Table struct {
	Caption string
	Head    []string
	Rows    [][]Entry
	// Prose: the entries are words more than numbers. They stand at the left, and a page breaks
	// them into rows.
	Prose bool
}

// Entry is a cell of a table.
type Entry struct {
	Text string
	// Value orders the entries of a column, for its shade; Less: smaller is better. Only
	// columns in which every entry is Shaded have shades.
	Value  float64
	Shaded bool
	Less   bool
}

// Words returns an entry without a shade.
func Words(s string) Entry { return Entry{Text: s} }

// Figure returns a shaded entry, for which more is better.
func Figure(text string, value float64) Entry { return Entry{Text: text, Value: value, Shaded: true} }

// Cost returns a shaded entry, for which less is better.
func Cost(text string, value float64) Entry {
	return Entry{Text: text, Value: value, Shaded: true, Less: true}
}

// shade returns the opacity of an entry's background, from 0 for the worst of its column
// to 0.45 for the best.
func (t *Table) shade(row, column int) float64 {
	low, high := t.Rows[row][column].Value, t.Rows[row][column].Value
	for _, r := range t.Rows {
		if column >= len(r) || !r[column].Shaded {
			return 0
		}
		low, high = min(low, r[column].Value), max(high, r[column].Value)
	}
	if low == high {
		return 0
	}
	share := (t.Rows[row][column].Value - low) / (high - low)
	if t.Rows[row][column].Less {
		share = 1 - share
	}
	return 0.45 * share
}

// HTML returns the page.
func (p *Page) HTML() string {
	var b strings.Builder
	if err := pageTemplate.Execute(&b, p.view()); err != nil {
		panic("report: " + err.Error()) // the template and its data are ours
	}
	return b.String()
}

// Files returns the page, its text and its pictures, each as a file by its name.
func (p *Page) Files() map[string][]byte {
	files := map[string][]byte{results.ReportFile: []byte(p.HTML()), results.TextFile: p.Markdown()}
	n := 0
	for _, s := range p.sections() {
		for _, f := range s.Figures {
			n++
			files[fmt.Sprintf("figure-%02d-%s.svg", n, results.FileName(f.Title))] = []byte(f.SVG())
		}
	}
	return files
}

// sections are all of the page.
func (p *Page) sections() []Section {
	if s := costs(p.Result); s != nil {
		return append(slices.Clone(p.Sections), *s)
	}
	return p.Sections
}

// checks are reasons to trust the figures, of both sides of a comparison.
func (p *Page) checks() []Check {
	after := Trust(p.Result)
	if p.Before == nil {
		return after
	}
	var all []Check
	before := Trust(p.Before)
	add := func(side string, checks, others []Check) {
		for _, c := range checks {
			if !slices.Contains(others, c) {
				c.Text = side + ": " + c.Text
			} else if slices.Contains(all, c) {
				continue
			}
			all = append(all, c)
		}
	}
	add("Before", before, after)
	add("After", after, before)
	return all
}

// facts say how the figures were measured, on both sides of a comparison.
func (p *Page) facts() [][2]string {
	after := facts(p.Result)
	if p.Before == nil {
		return after
	}
	var all [][2]string
	for i, before := range facts(p.Before) { // of the same names
		if before == after[i] {
			all = append(all, before)
			continue
		}
		all = append(all, [2]string{before[0] + ", before", before[1]}, [2]string{after[i][0] + ", after", after[i][1]})
	}
	return all
}

type view struct {
	*Page
	CSS      template.CSS
	Checks   []Check
	Sections []sectionView
	Facts    [][2]string
}

type sectionView struct {
	Section
	Tables  []tableView
	Figures []figureView
}

// figureView is a figure, and what a narrow window shows in its place; "" for the figure itself.
type figureView struct{ Full, Slim template.HTML }

// mostColumns is how many columns of figures the width of a page holds in its usual font.
const mostColumns = 7

// mostRows is how many rows a table may have that is not folded.
const mostRows = 50

type tableView struct {
	*Table
	Class string // of the HTML element; "" is the usual one
	Long  bool
	Rows  [][]entryView
}

type entryView struct {
	Text  string
	Shade template.CSS
}

func (p *Page) view() *view {
	v := &view{Page: p, CSS: template.CSS(chart.CSS + pageCSS), Checks: p.checks(), Facts: p.facts()}
	for _, s := range p.sections() {
		sv := sectionView{Section: s}
		for _, t := range s.Tables {
			sv.Tables = append(sv.Tables, t.view())
		}
		for _, f := range s.Figures {
			sv.Figures = append(sv.Figures, figureView{template.HTML(f.Inline()), template.HTML(f.Slim())}) // chart escapes its texts
		}
		v.Sections = append(v.Sections, sv)
	}
	return v
}

func (t *Table) view() tableView {
	v := tableView{Table: t, Long: len(t.Rows) > mostRows}
	switch {
	case t.Prose:
		v.Class = "prose"
	case len(t.Head) > mostColumns:
		v.Class = "dense"
	}
	for row := range t.Rows {
		var entries []entryView
		for column := range t.Rows[row] {
			e := entryView{Text: t.Rows[row][column].Text}
			if s := t.shade(row, column); s > 0 {
				e.Shade = template.CSS("--shade:" + decimal(s))
			}
			entries = append(entries, e)
		}
		v.Rows = append(v.Rows, entries)
	}
	return v
}

const pageCSS = `
:root{color-scheme:light dark;--page:#fff;--ink:#1a1a1a;--soft:#5c5c5c;--edge:#dcdcdc;--box:#f6f7f9;--good:#00795a;--bad:#b34700;--tint:0,114,178}
@media (prefers-color-scheme:dark){:root{--page:#16181c;--ink:#e8e8e8;--soft:#a6a6a6;--edge:#353a41;--box:#1e2126;--good:#3fd3a2;--bad:#ff9d5c;--tint:90,180,240}}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;margin:0 auto;max-width:800px;padding:24px 16px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}h2{font-size:19px;margin:36px 0 8px;border-bottom:1px solid var(--edge);padding-bottom:4px}
.lead{font-size:17px;margin:4px 0 16px}.soft,.caption{color:var(--soft)}
.trust{background:var(--box);border:1px solid var(--edge);border-radius:6px;padding:10px 16px;margin:16px 0}
.trust h2{border:0;margin:0 0 4px;font-size:16px}.trust ul{margin:0;padding:0;list-style:none}.trust li{padding-left:1.6em;text-indent:-1.6em}
.ok::before{content:"✓";color:var(--good);display:inline-block;width:1.6em;text-indent:0}.no::before{content:"!";color:var(--bad);font-weight:700;display:inline-block;width:1.6em;text-indent:0}
.wide{overflow-x:auto}.dense{font-size:13px}.dense th,.dense td{padding:3px 7px}table{border-collapse:collapse;margin:12px 0;font-variant-numeric:tabular-nums;font-size:14px}
.caption{margin:-8px 0 12px;font-size:13px}
th,td{padding:3px 10px;text-align:right;border-bottom:1px solid var(--edge);white-space:nowrap}th:first-child,td:first-child{text-align:left}
.prose th,.prose td{text-align:left;white-space:normal;vertical-align:top}
td{background:rgba(var(--tint),var(--shade,0))}
svg{max-width:100%;height:auto;display:block;margin:12px 0}
.figure{overflow-x:auto}.slim{display:none}
@media (max-width:640px){.figure svg{max-width:none}.full{display:none}.slim{display:block}.slim svg,.narrow .figure svg{max-width:100%}th:first-child,td:first-child{white-space:normal;min-width:6em}}
@supports (animation-timeline:scroll()){.wide,.figure{animation:more linear;animation-timeline:scroll(self inline)}}
@keyframes more{from,95%{mask-image:linear-gradient(to right,#000 calc(100% - 48px),transparent)}to{mask-image:linear-gradient(#000,#000)}}
.narrow{display:flex;flex-wrap:wrap;gap:0 16px;align-items:flex-start}
details{margin:8px 0}dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:8px 0}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:640px){dl{grid-template-columns:1fr}dd{margin-bottom:6px}}
`

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Title}}</title>
<style>{{.CSS}}</style>
</head>
<body>
<h1>{{.Title}}</h1>
<p class="lead">{{.Lead}}</p>
<section class="trust">
<h2>Can I trust this?</h2>
<ul>
{{range .Checks}}<li class="{{if .OK}}ok{{else}}no{{end}}">{{.Text}}</li>
{{end}}</ul>
</section>
{{range .Sections}}<section>
<h2>{{.Title}}</h2>
{{range .Text}}<p>{{.}}</p>
{{end}}{{range .Tables}}{{if .Long}}<details><summary>All {{len .Rows}} rows. {{.Caption}}</summary>
{{end}}<div class="wide"><table{{with .Class}} class="{{.}}"{{end}}>
<thead><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range .}}<td{{with .Shade}} style="{{.}}"{{end}}>{{.Text}}</td>{{end}}</tr>
{{end}}</tbody>
</table></div>
{{if .Long}}</details>
{{else}}{{with .Caption}}<p class="caption">{{.}}</p>
{{end}}{{end}}{{end}}{{if .Narrow}}<div class="narrow">
{{end}}{{range .Figures}}<div class="figure{{if .Slim}} full{{end}}">{{.Full}}</div>
{{with .Slim}}<div class="figure slim">{{.}}</div>
{{end}}{{end}}{{if .Narrow}}</div>
{{end}}</section>
{{end}}<section>
<h2>How it was measured</h2>
<dl>
{{range .Facts}}<dt>{{index . 0}}</dt><dd>{{index . 1}}</dd>
{{end}}</dl>
</section>
</body>
</html>
`))
