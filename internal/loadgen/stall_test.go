package loadgen

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTheLongestTimeWithoutAnEndIsTheStall(t *testing.T) {
	s := &stallWatch{lastEnd: 100}
	for _, look := range []struct{ now, lastEnd, want int64 }{
		{105, 0, 5},     // no operation has ended yet
		{110, 108, 5},   // an operation has ended
		{150, 108, 42},  // and then none
		{155, 154, 42},  // again
		{160, 152, 42},  // lastEnd never goes back
		{200, 154, 46},  // a longer stall
		{1000, 999, 46}, // which ended between two samples
	} {
		s.look(look.now, look.lastEnd)
		assert.Equal(t, time.Duration(look.want), s.longest, "at %d", look.now)
	}
}
