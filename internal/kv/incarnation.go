package kv

import (
	"fmt"
	"strconv"
	"strings"
)

// Incarnation tells apart what became of a cluster after it lost a majority of its nodes: each recovery
// begins another one, with what was on one node. Two of them may have the same cluster and the same
// nodes, and have nothing else in common. The zero Incarnation is that of a cluster that was never
// recovered.
type Incarnation struct {
	Recoveries uint32 // so often the cluster was recovered
	ID         uint64 // random, of the last recovery
}

// String returns 0 for the zero Incarnation, and otherwise as in 2-00c0ffee00c0ffee.
func (i Incarnation) String() string {
	if i == (Incarnation{}) {
		return "0"
	}
	return fmt.Sprintf("%d-%016x", i.Recoveries, i.ID)
}

// Later returns the one of two incarnations of a node's cluster that has more recoveries.
func (i Incarnation) Later(other Incarnation) Incarnation {
	if other.Recoveries > i.Recoveries {
		return other
	}
	return i
}

// ParseIncarnation is the inverse of String. An empty text is the zero Incarnation.
//
// Errors: ErrInvalidArgument.
func ParseIncarnation(text string) (i Incarnation, err error) {
	if text == "" {
		return i, nil
	}
	number, id, _ := strings.Cut(text, "-")
	recoveries, err := strconv.ParseUint(number, 10, 32)
	if err == nil && id != "" {
		i.ID, err = strconv.ParseUint(id, 16, 64)
	}
	i.Recoveries = uint32(recoveries)
	if err != nil || i.String() != text {
		return Incarnation{}, fmt.Errorf("%w: %q is no incarnation of a cluster", ErrInvalidArgument, text)
	}
	return i, nil
}
