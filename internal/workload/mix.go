package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// kind is the kind of an operation.
type kind uint8

const (
	kindPut kind = iota
	kindDelete
	kindGet
	kindCount
)

var kindNames = [kindCount]string{"put", "delete", "get"}

func (k kind) String() string { return kindNames[k] }

// Operations returns the names of the operations that a run of a mix counts.
func Operations() []string { return slices.Clone(kindNames[:]) }

// The extra counters of a mix's tallies.
const (
	getKnown = iota // gets of a key that the worker expected to be present
	getFound
	deleteFound
	extraCount
)

// Mix gives the share of each kind of operation.
type Mix struct {
	Name             string
	Put, Delete, Get int // percent, 100 in all
}

// Mixes are those of the LSM-tree articles of DBFromZero, with their names.
var Mixes = []Mix{
	{Name: "PUT_HEAVY", Put: 90, Delete: 5, Get: 5},
	{Name: "GET_HEAVY", Put: 10, Delete: 5, Get: 85},
	{Name: "DELETE_HEAVY", Put: 45, Delete: 45, Get: 10},
	{Name: "BALANCED", Put: 33, Delete: 33, Get: 34},
}

// PureMixes have one kind of operation.
var PureMixes = []Mix{
	{Name: "READ_ONLY", Get: 100},
	{Name: "WRITE_ONLY", Put: 100},
}

// ParseMix finds a mix by its name, in upper or lower case.
func ParseMix(name string) (Mix, error) {
	all := slices.Concat(Mixes, PureMixes)
	names := make([]string, len(all))
	for i, m := range all {
		if strings.EqualFold(name, m.Name) {
			return m, nil
		}
		names[i] = m.Name
	}
	return Mix{}, fmt.Errorf("unknown mix %q; choose one of %s", name, strings.Join(names, ", "))
}

func (m Mix) validate() error {
	if m.Put < 0 || m.Delete < 0 || m.Get < 0 || m.Put+m.Delete+m.Get != 100 {
		return fmt.Errorf("mix %q is %d/%d/%d; put, delete and get add up to 100 percent", m.Name, m.Put, m.Delete, m.Get)
	}
	return nil
}

// draw chooses the kind of the next operation.
func (m Mix) draw(rng *rand.Rand) kind {
	switch n := rng.IntN(100); {
	case n < m.Put:
		return kindPut
	case n < m.Put+m.Delete:
		return kindDelete
	}
	return kindGet
}
