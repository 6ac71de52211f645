package results

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// A log of HdrHistogram (Tene) has one line for each interval and tag, with the histogram of
// what ended in that interval: version 1.3 of the log, with histograms of encoding V2,
// compressed. Here tags are operations and values nanoseconds.
//
// The buckets of package histogram are those of an HdrHistogram of two significant digits
// that tells 1 from 2, so that the encoding is exact. That is why it is written here: it
// takes the index of a bucket and a variable-length integer, and a library would count each
// operation again.

// mostIntervals bounds the intervals of a run: that of ever so many seconds.
const mostIntervals = 120

// interval is a part of a run.
type interval struct {
	from, to  float64 // seconds since the measurement began
	latencies []Latencies
}

// intervals are those of a run. They are as long as the seconds that were added, until there
// are mostIntervals of them; then each two become one.
type intervals struct {
	list   []interval
	merged int // seconds in each but the last; 0 means 1
	last   int // seconds in the last
}

func (v *intervals) add(second interval) {
	v.merged = max(v.merged, 1)
	if n := len(v.list); n > 0 && v.last < v.merged {
		v.list[n-1].extend(&second)
		v.last++
		return
	}
	if len(v.list) == mostIntervals {
		for i := range mostIntervals / 2 {
			v.list[i] = v.list[2*i]
			v.list[i].extend(&v.list[2*i+1])
		}
		clear(v.list[mostIntervals/2:])
		v.list = v.list[:mostIntervals/2]
		v.merged *= 2
	}
	v.list, v.last = append(v.list, second), 1
}

// extend adds an interval that follows.
func (i *interval) extend(next *interval) {
	i.to = next.to
	for _, l := range next.latencies {
		n := slices.IndexFunc(i.latencies, func(have Latencies) bool { return have.Operation == l.Operation })
		if n < 0 {
			i.latencies = append(i.latencies, l)
			continue
		}
		have := &i.latencies[n]
		have.Buckets = sum(have.Buckets, l.Buckets)
	}
}

// sum adds up two lists of buckets. The largest latency of a bucket may differ between lists.
func sum(a, b [][2]uint64) [][2]uint64 {
	all := make([][2]uint64, 0, max(len(a), len(b)))
	for len(a)+len(b) > 0 {
		if len(a) == 0 || len(b) > 0 && hdrIndex(b[0][0]) < hdrIndex(a[0][0]) {
			a, b = b, a
		}
		next := a[0]
		a = a[1:]
		if len(b) > 0 && hdrIndex(b[0][0]) == hdrIndex(next[0]) {
			next = [2]uint64{max(next[0], b[0][0]), next[1] + b[0][1]}
			b = b[1:]
		}
		all = append(all, next)
	}
	return all
}

// lines returns the lines of a log.
func (v *intervals) lines() []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(nil) // a new one clears a megabyte
	for i := range v.list {
		for n := range v.list[i].latencies {
			l := &v.list[i].latencies[n]
			fmt.Fprintf(&b, "Tag=%s,%.3f,%.3f,%.3f,%s\n", FileName(l.Operation), v.list[i].from, v.list[i].to-v.list[i].from, float64(l.max())/1e6,
				base64.StdEncoding.EncodeToString(l.encode(w)))
		}
	}
	return b.Bytes()
}

// hdrLog returns the log of a run of a cell.
func hdrLog(r *Result, c *Cell, run *Run) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#[%s; latencies in nanoseconds, Interval_Max in milliseconds]\n#[Histogram log format version 1.3]\n", c.Name())
	if began, err := time.Parse(time.RFC3339, r.Began); err == nil {
		fmt.Fprintf(&b, "#[StartTime: %d.000 (seconds since epoch), %s]\n", began.Unix(), r.Began)
	}
	fmt.Fprintln(&b, `"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"`)
	b.Write(run.log)
	return b.Bytes()
}

// The parameters of the HdrHistogram with the buckets of package histogram.
const (
	hdrCookie           = 0x1c849303 | 0x10 // V2, counts in variable length
	hdrCompressedCookie = 0x1c849304 | 0x10
	hdrDigits           = 2
	hdrLeast            = 1
	hdrMost             = 1<<42 - 1 // ns; longer ones count as this
	hdrHalfBits         = 7         // 128 buckets for each power of two
)

// hdrIndex returns the index of the bucket of a value.
func hdrIndex(v uint64) int {
	v = min(v, hdrMost)
	shift := max(bits.Len64(v)-1-hdrHalfBits, 0)
	return shift<<hdrHalfBits + int(v>>shift)
}

func (l *Latencies) max() uint64 {
	longest := uint64(0)
	for _, b := range l.Buckets {
		longest = max(longest, b[0])
	}
	return longest
}

// encode returns the histogram in the encoding V2, which w compresses.
func (l *Latencies) encode(w *zlib.Writer) []byte {
	counts := make([]int64, hdrIndex(l.max())+1)
	for _, b := range l.Buckets {
		counts[hdrIndex(b[0])] += int64(b[1])
	}
	var payload []byte
	for i := 0; i < len(counts); i++ {
		zeros := 0
		for i+zeros < len(counts) && counts[i+zeros] == 0 {
			zeros++
		}
		if zeros > 1 { // a negative number counts zeros
			payload = binary.AppendVarint(payload, -int64(zeros))
			i += zeros - 1
			continue
		}
		payload = binary.AppendVarint(payload, counts[i])
	}
	be := binary.BigEndian
	plain := be.AppendUint32(nil, hdrCookie)
	plain = be.AppendUint32(plain, uint32(len(payload)))
	plain = be.AppendUint32(plain, 0) // normalizing index offset
	plain = be.AppendUint32(plain, hdrDigits)
	plain = be.AppendUint64(plain, hdrLeast)
	plain = be.AppendUint64(plain, hdrMost)
	plain = be.AppendUint64(plain, math.Float64bits(1)) // ratio of integers to values
	plain = append(plain, payload...)

	var compressed bytes.Buffer
	w.Reset(&compressed)
	_, _ = w.Write(plain) // into memory
	_ = w.Close()
	encoded := be.AppendUint32(nil, hdrCompressedCookie)
	encoded = be.AppendUint32(encoded, uint32(compressed.Len()))
	return append(encoded, compressed.Bytes()...)
}
