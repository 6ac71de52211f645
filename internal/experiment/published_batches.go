package experiment

import "time"

// publishedBatches holds the table of the article on micro-batching, by batch size.
var publishedBatches = map[string]batchFigures{
	BatchNone: {50, 5200 * time.Microsecond, 770 * time.Millisecond, 60_000},
	"1":       {87, 7900 * time.Microsecond, 0, 34_500},
	"2":       {43, 4 * time.Millisecond, 42 * time.Millisecond, 70_000},
	"4":       {21, 2200 * time.Microsecond, 31 * time.Millisecond, 143_000},
	"8":       {9.5, 700 * time.Microsecond, 39 * time.Millisecond, 316_000},
	"16":      {5.5, 450 * time.Microsecond, 21 * time.Millisecond, 550_000},
	"24":      {5, 400 * time.Microsecond, 22 * time.Millisecond, 600_000},
	"32":      {4.8, 380 * time.Microsecond, 18 * time.Millisecond, 625_000},
}

// batchFigures is a row of that table.
type batchFigures struct {
	seconds     float64 // for 3,000,000 reads
	mean, worst time.Duration
	rate        float64 // reads/s
}

func publishedBatch(batch string) (batchFigures, bool) {
	f, ok := publishedBatches[batch]
	return f, ok
}

// PublishedGain returns the article's rate of reads in batches of a size, relative to
// unbatched, and false if the article has no such size.
func PublishedGain(batch string) (gain float64, ok bool) {
	f, ok := publishedBatch(batch)
	none, _ := publishedBatch(BatchNone)
	return f.rate / none.rate, ok
}
