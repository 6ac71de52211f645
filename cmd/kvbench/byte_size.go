package main

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// byteSize is a flag such as 4096, 64KiB, 256MiB or 2GiB.
type byteSize int64

// mostBytes bounds sizes, so that a share or a multiple of one remains a number of bytes.
var mostBytes = byteSize(1 << 46)

var byteUnits = []struct {
	suffix string
	shift  uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}}

func (b *byteSize) Set(s string) error {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || bits.Len64(n)+int(u.shift) > 63 {
			break
		}
		if *b = byteSize(n << u.shift); *b > mostBytes {
			return fmt.Errorf("%s is more than any machine has; want at most %s", s, mostBytes.String())
		}
		return nil
	}
	return fmt.Errorf("%q is no size; write bytes, or a number with KiB, MiB or GiB", s)
}

func (b *byteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*b) >> u.shift; n > 0 && n<<u.shift == int64(*b) {
			return strconv.FormatInt(n, 10) + u.suffix
		}
	}
	return "0"
}

func (b *byteSize) Type() string { return "size" }
