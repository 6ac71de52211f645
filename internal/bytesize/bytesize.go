// Package bytesize reads and writes sizes in bytes as people do: 64MiB, 2GiB.
package bytesize

import (
	"fmt"
	"strconv"
	"strings"
)

var units = []struct {
	name  string
	shift uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}, {"", 0}}

// Parse parses a positive size such as 64MiB or 1GiB; a number without a unit is in bytes.
func Parse(text string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > 1<<62>>u.shift {
			break
		}
		return n << u.shift, nil
	}
	return 0, fmt.Errorf("%q is no size, such as 64MiB or 2GiB", text)
}

// Format formats a size in the largest unit that divides it.
func Format(n int64) string {
	for _, u := range units {
		if n >= 1<<u.shift && n&(1<<u.shift-1) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
