package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Number writes a value with three digits at most and a suffix for thousands, millions
// and so on: 12.5k, 3M.
func Number(v float64) string { return scaled(v, 1000, []string{"", "k", "M", "G", "T", "P"}) }

// Bytes writes a number of bytes with a binary unit.
func Bytes(v float64) string {
	return scaled(v, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB", " PiB"})
}

// Nanos writes a number of nanoseconds as a duration of three digits at most.
func Nanos(v float64) string {
	switch {
	case v == 0:
		return "0 s" // whatever the unit of the values beside it
	case v >= 60e9:
		return time.Duration(v).Round(time.Second).String()
	}
	return scaled(v, 1000, []string{" ns", " µs", " ms", " s"})
}

// Seconds writes a number of seconds.
func Seconds(v float64) string { return digits(v) + " s" }

// Percent writes a share of one.
func Percent(v float64) string { return digits(100*v) + " %" }

// Times writes a ratio.
func Times(v float64) string { return digits(v) + "x" }

func scaled(v, base float64, units []string) string {
	n := 0
	for math.Abs(v) >= base*0.9995 && n < len(units)-1 {
		v /= base
		n++
	}
	return digits(v) + units[n]
}

// digits writes a number with three significant digits, and no zeros at the end of a
// fraction.
func digits(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	decimals := max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	s := strconv.FormatFloat(v, 'f', min(decimals, 6), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
