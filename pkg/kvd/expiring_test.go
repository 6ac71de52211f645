package kvd

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Of many keys that expire, those that do first are kept.
func TestTheKeysThatExpireFirstAreKept(t *testing.T) {
	var e expiring
	e.add([]byte("for ever"), 0)
	assert.Empty(t, e.keys())
	key := func(n int) []byte { return fmt.Appendf(nil, "%03d", n) }
	const all = 3 * maxExpiring
	for i := range all {
		n := i * 7 % all // in another order
		for range 2 {
			e.add(key(n), time.Duration(n+1)*time.Hour)
		}
	}
	kept := map[string]bool{}
	for _, k := range e.keys() {
		kept[string(k)] = true
	}
	assert.Len(t, e.keys(), maxExpiring)
	for n := range maxExpiring {
		assert.True(t, kept[string(key(n))], "key %d", n)
	}
}
