package results

import (
	"bytes"
	"fmt"
	"math"
)

// percentiles returns the distribution in the text format of HdrHistogram's
// outputPercentileDistribution, in microseconds: a row for each bucket that raises the
// percentile by at least a fifth of the way to the next halving of what is left.
func (l *Latencies) percentiles() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	var total uint64
	var sum, squares float64
	for _, bucket := range l.Buckets {
		total += bucket[1]
		sum += float64(bucket[0]) * float64(bucket[1])
	}
	mean := sum / float64(max(total, 1))
	var seen, largest uint64
	next := 0.0
	for i, bucket := range l.Buckets {
		seen += bucket[1]
		largest = bucket[0]
		squares += (float64(bucket[0]) - mean) * (float64(bucket[0]) - mean) * float64(bucket[1])
		share := float64(seen) / float64(total)
		last := i == len(l.Buckets)-1
		if share < next && !last {
			continue
		}
		next = share + (1-share)/10
		if last {
			fmt.Fprintf(&b, "%12.3f %2.12f %10d\n", float64(bucket[0])/1e3, 1.0, seen)
			continue
		}
		fmt.Fprintf(&b, "%12.3f %2.12f %10d %14.2f\n", float64(bucket[0])/1e3, share, seen, 1/(1-share))
	}
	fmt.Fprintf(&b, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", mean/1e3, math.Sqrt(squares/float64(max(total, 1)))/1e3)
	fmt.Fprintf(&b, "#[Max     = %12.3f, Total count    = %12d]\n", float64(largest)/1e3, total)
	return b.Bytes()
}
