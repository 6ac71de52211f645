package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func fixed(v float64) *float64 { return &v }

// figures has every mark and every kind of axis.
func figures() map[string]*Figure {
	note := []string{"commit abc, machine of 2 cores, workload PUT_HEAVY, 3 runs of 20 s, closed loop"}
	threads := []float64{1, 4, 16, 32}
	wave := func(n int, of func(float64) float64) (x, y []float64) {
		for i := range n {
			x, y = append(x, float64(i)), append(y, of(float64(i)))
		}
		return x, y
	}
	seconds, rate := wave(60, func(s float64) float64 { return 200e3 + 50e3*math.Sin(s/5) })
	rate[20], rate[21] = math.NaN(), math.NaN()
	_, log := wave(60, func(s float64) float64 { return 64 << 20 })
	_, base := wave(60, func(s float64) float64 { return s * (30 << 20) })
	heat := &Heat{Of: "operations", X: []float64{0, 1, 2, 3}, Y: []float64{1e3, 1e4, 1e5, 1e6, 1e7}, Count: [][]float64{{0, 5, 900, 2}, {1, 70, 20e3, 0}, {0, 3e6, 4, 1}}}
	return map[string]*Figure{
		"scaling": {
			Title: "Throughput <&> threads", X: Axis{Label: "threads", Kind: Log2}, Note: note,
			Panels: []Panel{
				{Y: Axis{Label: "operations/s"}, Marks: []Mark{
					&Line{Name: "1 partition", Series: 0, X: threads, Y: []float64{40e3, 120e3, 150e3, 140e3}, Low: []float64{38e3, 110e3, 140e3, 120e3}, High: []float64{41e3, 130e3, 160e3, 150e3}},
					&Line{Name: "16 partitions", Series: 1, X: threads, Y: []float64{50e3, 150e3, 260e3, 280e3}},
					&Reference{Name: "ideal", X: threads, Y: []float64{50e3, 200e3, 300e3, 300e3}},
				}},
				{Y: Axis{Label: "p99", Kind: Log10, Format: Nanos}, Height: 120, Marks: []Mark{
					&Line{Name: "p99", Series: 2, X: threads, Y: []float64{9e3, 40e3, 900e3, 12e6}},
					&Rule{Y: fixed(1e6), Name: "goal"},
				}},
			},
		},
		"over-time": {
			Title: "Throughput and files over time", X: Axis{Label: "time", Format: Seconds}, Note: note,
			Panels: []Panel{
				{Y: Axis{Label: "operations/s"}, Marks: []Mark{&Shade{From: 20, To: 22, Name: "stall"}, &Line{Series: 0, X: seconds, Y: rate, Plain: true}}},
				{Y: Axis{Label: "bytes", Format: Bytes, Binary: true}, Height: 120, Marks: []Mark{&Area{X: seconds, Layers: []Layer{{"log", 4, log}, {"base", 0, base}}}}},
			},
		},
		"boxes": {
			Title: "Spread", X: Axis{Label: "flush threshold", Kind: Categories, Names: []string{"100k", "1M"}}, Note: []string{"Boxes: quartiles; whiskers: p1 to p99; tick: maximum; dots: runs."},
			Panels: []Panel{{Y: Axis{Label: "operations/s", Kind: Log10}, Marks: []Mark{
				&Boxes{Name: "4 threads", Series: 0, Of: 2, Boxes: []Box{{0, 10e3, 40e3, 60e3, 80e3, 150e3, 200e3, []float64{50e3, 70e3}}, {1, 20e3, 50e3, 70e3, 90e3, 180e3, 220e3, nil}}},
				&Boxes{Name: "16 threads", Series: 1, Of: 2, Shift: 1, Boxes: []Box{{0, 15e3, 45e3, 70e3, 95e3, 170e3, 280e3, nil}, {1, 30e3, 80e3, 90e3, 120e3, 210e3, 300e3, nil}}},
			}}},
		},
		"heat": {
			Title: "Latency over time", X: Axis{Label: "time", Format: Seconds},
			Panels: []Panel{{Y: Axis{Label: "latency", Kind: Log10, Format: Nanos}, Marks: []Mark{heat}}},
		},
		"tail": {
			Title: "Latency by percentile", X: Axis{Label: "percentile", Kind: Tail},
			Panels: []Panel{{Y: Axis{Label: "latency", Kind: Log10, Format: Nanos}, Marks: []Mark{
				&Line{Name: "get", Series: 0, X: []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999}, Y: []float64{2e3, 5e3, 9e3, 70e3, 800e3, 3e6}},
			}}},
		},
		"bars": {
			Title: "Where the time goes", X: Axis{Kind: Categories, Names: []string{"p50", "p99", "p99.9"}},
			Panels: []Panel{
				{Y: Axis{Label: "time", Format: Nanos}, Marks: []Mark{&Bars{X: []float64{0, 1, 2}, Stacked: true, Layers: []Layer{{"network", 0, []float64{20e3, 30e3, 90e3}}, {"sync", 1, []float64{100e3, 300e3, 900e3}}}}}},
				{Y: Axis{Label: "share", Format: Percent}, Height: 100, Marks: []Mark{&Bars{X: []float64{0, 1, 2}, Layers: []Layer{{"a", 2, []float64{0.1, 0.2, 0.3}}, {"b", 3, []float64{0.3, 0.2, 0.1}}}}}},
			},
		},
		"forest": {
			Title: "B against A", X: Axis{Label: "difference", Format: Percent},
			Panels: []Panel{{Y: Axis{Kind: Categories, Names: []string{"get p99", "put p99", "operations/s"}}, Height: 100, Marks: []Mark{
				&Rule{X: fixed(0), Name: "no difference"},
				&Intervals{Rows: []Interval{
					{Row: 0, Low: -0.05, Mid: 0.01, High: 0.06}, {Row: 1, Low: 0.08, Mid: 0.1, High: 0.12, Series: 1}, {Row: 2, Low: -0.12, Mid: -0.1, High: -0.09, Series: 1},
				}},
			}}},
		},
		"keys": {
			Title: "A key shows what its mark looks like", X: Axis{Label: "bytes", Kind: Log2, Format: Bytes},
			Panels: []Panel{{Y: Axis{Label: "bytes", Kind: Log2, Format: Bytes}, Height: 100, Marks: []Mark{
				&Line{Name: "with markers", Series: 0, X: []float64{1 << 20, 1 << 22}, Y: []float64{1 << 20, 1 << 24}},
				&Line{Name: "without", Series: 1, X: []float64{1 << 20, 1 << 22}, Y: []float64{1 << 24, 1 << 20}, Plain: true},
				&Line{Name: "markers alone", Series: 2, X: []float64{1 << 20, 1 << 22}, Y: []float64{1 << 22, 1 << 22}, Dots: true},
			}}},
		},
		"empty": {Title: "Nothing", Panels: []Panel{{}}},
	}
}

// TestTheColoursOfAHeatMapDoNotCoverItsKeys: both stand above the panel.
func TestTheColoursOfAHeatMapDoNotCoverItsKeys(t *testing.T) {
	f := Figure{Panels: []Panel{{Marks: []Mark{
		&Heat{Of: "% of the batches", X: []float64{0, 1}, Y: []float64{1, 2}, Count: [][]float64{{50}}},
		&Line{Name: "writes a sync of the log", X: []float64{0, 1}, Y: []float64{1, 2}},
	}}}}
	for _, svg := range []string{f.SVG(), f.Slim()} {
		var rows []float64
		for _, text := range []string{"writes a sync of the log", "50 % of the batches"} {
			row := regexp.MustCompile(`<text[^>]* y="([0-9.]+)"[^>]*>` + text + `<`).FindStringSubmatch(svg)
			require.NotNil(t, row, text)
			y, err := strconv.ParseFloat(row[1], 64)
			require.NoError(t, err)
			rows = append(rows, y)
		}
		assert.GreaterOrEqual(t, rows[1]-rows[0], float64(textSize), "they are a row apart")
	}
}

func TestGoldenFigures(t *testing.T) {
	for name, f := range figures() {
		file := filepath.Join("testdata", name+".svg")
		got := f.SVG()
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, name)
	}
}

func TestFiguresAreWellFormedAndDeterministic(t *testing.T) {
	long := regexp.MustCompile(` (x|y|x1|x2|y1|y2|width|height|d|cx|cy)="[^"]*\.[0-9]{2}`)
	for name, f := range figures() {
		d := xml.NewDecoder(strings.NewReader(f.SVG()))
		d.Strict = true
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, name)
			}
		}
		assert.Equal(t, f.SVG(), f.SVG(), name)
		assert.NotContains(t, f.SVG(), "NaN", name)
		assert.NotContains(t, f.Inline(), "<style>", name)
		assert.False(t, long.MatchString(f.Inline()), "%s has a coordinate of many digits", name)
	}
}

// TestLabelsOfTheXAxisDoNotOverlap reads the labels below the axis back from the SVG, at all widths
// from two thirds of a telephone on. Labels of categories are never left out.
func TestLabelsOfTheXAxisDoNotOverlap(t *testing.T) {
	label := regexp.MustCompile(`<text class="d" text-anchor="middle" x="([0-9.]+)" y="([0-9.]+)">([^<]*)</text>`)
	all := figures()
	all["stages"] = &Figure{
		X:      Axis{Kind: Categories, Names: []string{"p0 to p50: 11.2 µs", "p50 to p99: 124 µs", "p99 to p99.9: 2.13 ms", "over p99.9: 103.6 ms"}},
		Panels: []Panel{{Y: Axis{Format: Percent}, Marks: []Mark{&Bars{X: []float64{0, 1, 2, 3}, Stacked: true, Layers: []Layer{{"Sync", 0, []float64{1, 1, 1, 1}}}}}}},
	}
	all["an unbreakable name"] = &Figure{X: Axis{Kind: Categories, Names: []string{"scrambledzipfian", "uniform", "sequential"}}, Panels: []Panel{{}}}
	all["another one"] = &Figure{X: Axis{Kind: Categories, Names: []string{"uniform", "sequential", "scrambledzipfianscrambledzipfian"}}, Panels: []Panel{{}}}
	for name, f := range all {
		for f.Width = 240; f.Width <= 1200; f.Width += 7 {
			end, shown := map[string]float64{}, ""
			for _, m := range label.FindAllStringSubmatch(f.SVG(), -1) {
				x, err := strconv.ParseFloat(m[1], 64)
				require.NoError(t, err)
				half := textWidth(m[3]) / 2
				if last, ok := end[m[2]]; ok {
					gap := float64(leastGap)
					if f.X.Kind != Categories || name == "stages" && f.Width >= slimWidth {
						gap = labelGap
					}
					require.GreaterOrEqual(t, x-half-last, gap-0.11, "%s, %v wide: %s", name, f.Width, m[3]) // of rounded coordinates
				}
				end[m[2]] = x + half
				require.LessOrEqual(t, x+half, f.Width, "%s, %v wide: %s", name, f.Width, m[3])
				shown += m[3]
			}
			if f.X.Kind == Categories {
				letters := 0
				for _, name := range f.X.Names {
					letters += len(strings.ReplaceAll(name, " ", ""))
				}
				require.GreaterOrEqual(t, len(strings.ReplaceAll(shown, " ", "")), letters, "%s, %v wide: a label is missing", name, f.Width)
			}
		}
	}
}

func TestScalesKeepOrderAndShowTheirTicks(t *testing.T) {
	for _, a := range []Axis{{}, {Kind: Log2}, {Kind: Log10}, {Kind: Tail}, {Free: true}} {
		low, high := 1.0, 1e6
		if a.Kind == Tail {
			low, high = 0, 0.9999
		}
		s := newScale(&a, low, high, 0, 100)
		assert.Less(t, s.at(low), s.at((low+high)/2))
		assert.Less(t, s.at((low+high)/2), s.at(high))
		ticks := s.ticks()
		require.NotEmpty(t, ticks)
		for _, tick := range ticks {
			assert.GreaterOrEqual(t, s.at(tick.value), -0.01, "%v", a.Kind)
			assert.LessOrEqual(t, s.at(tick.value), 100.01, "%v", a.Kind)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	for want, got := range map[string]string{
		"0": Number(0), "950": Number(950), "1k": Number(999.9), "12.5k": Number(12_500), "3M": Number(3e6), "0.25": Number(0.25),
		"512 B": Bytes(512), "1.5 KiB": Bytes(1536), "3 GiB": Bytes(3 << 30),
		"950 ns": Nanos(950), "0 s": Nanos(0), "1.25 ms": Nanos(1.25e6), "2m0s": Nanos(120e9), "12 s": Seconds(12), "12.5 %": Percent(0.125), "1.3x": Times(1.3),
	} {
		assert.Equal(t, want, got)
	}
}

// TestAShadeIsDrawnAsFarAsTheAxisShowsIt: a stall that began before a zoomed panel is seen in it.
func TestAShadeIsDrawnAsFarAsTheAxisShowsIt(t *testing.T) {
	p := &plot{canvas: new(canvas), x: newScale(&Axis{Free: true}, 10, 20, 100, 200), left: 100, width: 100, height: 50}
	for _, s := range []Shade{{From: 5, To: 12}, {From: 18, To: 99}, {From: 0, To: 99}, {From: 0, To: 10}, {From: 20, To: 30}} {
		s.draw(p)
	}
	const rect = `<rect class="sh" x="%d" y="0" width="%d" height="50"/>`
	assert.Equal(t, fmt.Sprintf(rect+"\n"+rect+"\n"+rect+"\n", 100, 20, 180, 20, 100, 100), p.String())
}

func TestRowsOfANoteFit(t *testing.T) {
	for _, row := range wrap(strings.Repeat("some words of a note ", 40), 300, noteSize) {
		assert.LessOrEqual(t, textWidth(row)*11/12, 300.0)
	}
	assert.Empty(t, wrap("", 100, noteSize))
}

func TestNamesOfCategoriesBreak(t *testing.T) {
	for name, want := range map[string][]string{
		"p50":                  {"p50"},
		"p99 to p99.9: 2.1 ms": {"p99 to", "p99.9:", "2.1 ms"},
		"DELETE_HEAVY":         {"DELETE_", "HEAVY"},
		"scrambled-zipfian":    {"scrambled-", "zipfian"},
		"a_b-c d e f g h i j":  {"a_b-c d e", "f g h i j"},
		"unbreakable_":         {"unbreakable_"},
	} {
		assert.Equal(t, want, breakName(name, 60), name)
	}
}

// TestAFigureForATelephoneShowsAllOfIt: names in rows, and nothing beyond its right end.
func TestAFigureForATelephoneShowsAllOfIt(t *testing.T) {
	bars := &Bars{X: []float64{0, 1, 2, 3}, Stacked: true, Layers: []Layer{{"a name of a series that is wider than the whole telephone is", 0, []float64{1, 2, 3, 4}}}}
	f := &Figure{
		Title: "A title that is wider than the telephone that shows it", X: Axis{Kind: Categories, Names: []string{"PUT_HEAVY", "GET_HEAVY", "DELETE_HEAVY", "BALANCED"}},
		Panels: []Panel{{Y: Axis{Label: "time", Format: Nanos}, Marks: []Mark{bars}}},
	}
	svg := f.Slim()
	assert.Zero(t, f.Width, "the figure itself is as it was")
	assert.Contains(t, svg, `width="358"`)
	for _, row := range []string{">DELETE_<", ">HEAVY<", ">BALANCED<"} {
		assert.Contains(t, svg, row)
	}
	text := regexp.MustCompile(`<text class="([a-z])" text-anchor="(start|middle)" x="([0-9.]+)" y="[0-9.]+">([^<]*)</text>`)
	for _, m := range text.FindAllStringSubmatch(svg, -1) {
		x, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		width := textWidth(m[4]) * map[string]float64{"t": titleSize, "d": textSize, "n": noteSize}[m[1]] / textSize
		if m[2] == "middle" {
			width /= 2
		}
		assert.LessOrEqual(t, x+width, float64(slimWidth), m[4])
	}

	f.Width = 376
	assert.Empty(t, f.Slim(), "it has a width of its own")
}

// TestNamesOfRowsStandAboveThemOnATelephone: beside them they would leave no room.
func TestNamesOfRowsStandAboveThemOnATelephone(t *testing.T) {
	f := figures()["forest"]
	f.Panels[0].Y.Names[1] = "the name of a row that is as wide as a telephone"
	svg := f.Slim()
	name := regexp.MustCompile(`<text class="d o" text-anchor="start" x="12" y="([0-9.]+)">`)
	row := regexp.MustCompile(`<line class="g" x1="[0-9.]+" y1="([0-9.]+)"`)
	names, rows := name.FindAllStringSubmatch(svg, -1), row.FindAllStringSubmatch(svg, -1)
	require.Len(t, names, 3)
	require.Len(t, rows, 3)
	for i := range names {
		at, err := strconv.ParseFloat(names[i][1], 64)
		require.NoError(t, err)
		of, err := strconv.ParseFloat(rows[i][1], 64)
		require.NoError(t, err)
		assert.InDelta(t, of-8, at, 0.11)
	}
	assert.False(t, f.Panels[0].Y.above, "the figure itself is as it was")
	assert.InDelta(t, 100, f.Panels[0].Height, 0)
}
