package experiment

import (
	"math"
	"slices"

	"github.com/kvd-db/kvd/internal/chart"
)

// published holds the rates of the article on the hash-partitioned tree, in thousand
// operations/s over one hour on eight processors: by mix, then by partitions 1, 4, 8, 16
// and threads 1, 4, 8, 16, 32.
var published = map[string][4][5]float64{
	"BALANCED":     {{44.4, 64.6, 64.7, 64.1, 62.3}, {60.0, 91.3, 99.4, 100.0, 100.4}, {65.7, 104.5, 121.3, 127.3, 126.6}, {73.4, 128.3, 159.0, 175.0, 172.8}},
	"DELETE_HEAVY": {{50.9, 77.4, 82.8, 80.5, 78.9}, {66.9, 81.9, 84.2, 97.5, 116.4}, {70.4, 99.7, 106.2, 112.1, 168.5}, {94.9, 143.9, 158.4, 167.5, 178.9}},
	"GET_HEAVY":    {{44.0, 106.4, 104.0, 90.9, 82.7}, {53.5, 144.5, 161.3, 153.3, 140.7}, {62.6, 160.0, 191.0, 189.4, 181.2}, {84.9, 187.1, 209.0, 223.0, 219.1}},
	"PUT_HEAVY":    {{36.9, 59.8, 67.7, 66.7, 66.9}, {43.0, 52.2, 62.2, 87.9, 97.4}, {55.0, 73.0, 76.3, 79.6, 76.7}, {69.5, 89.6, 111.1, 66.2, 33.1}},
}

// publishedPartitions and publishedThreads are the rows and columns of published.
var (
	publishedPartitions = []int{1, 4, 8, 16}
	publishedThreads    = []int{1, 4, 8, 16, 32}
)

// publishedRate returns the article's rate of a combination, in thousand operations/s.
func publishedRate(mix string, partitions, threads int) (float64, bool) {
	table, known := published[mix]
	row, column := slices.Index(publishedPartitions, partitions), slices.Index(publishedThreads, threads)
	if !known || row < 0 || column < 0 {
		return 0, false
	}
	return table[row][column], true
}

// publishedNote explains the panel of addPublished.
const publishedNote = "The article: an hour on 8 processors, with a scale of its own; compare the shapes."

// addPublished adds a panel with the article's rates to a figure: a line for each of the first
// panel, with the same series, at those of some numbers that the figure's x axis shows. rate
// returns the article's rate at a number, for a line of the figure. It adds nothing if the
// article has none of these rates.
func addPublished(f *chart.Figure, lines []*chart.Line, numbers []int, rate func(line, n int) (float64, bool)) {
	panel := chart.Panel{Y: chart.Axis{Label: "article, ops/s"}, Height: 120}
	for i, ours := range lines {
		line := &chart.Line{Series: ours.Series}
		for _, n := range numbers {
			if len(ours.X) == 0 || float64(n) < ours.X[0] || float64(n) > ours.X[len(ours.X)-1] {
				continue
			}
			if v, ok := rate(i, n); ok {
				line.X, line.Y = append(line.X, float64(n)), append(line.Y, math.Round(1e3*v))
			}
		}
		if len(line.X) > 0 {
			panel.Marks = append(panel.Marks, line)
		}
	}
	if len(panel.Marks) == 0 {
		return
	}
	f.Panels = slices.Insert(f.Panels, 1, panel)
	f.Note = append(f.Note, publishedNote)
}
