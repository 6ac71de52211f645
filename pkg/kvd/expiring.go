package kvd

import (
	"bytes"
	"time"
)

// maxExpiring bounds the expiring keys that a commit names. The key that expires first would do,
// but the client knows the end of a time to live only as exactly as its answers were fast.
const maxExpiring = 64

// expiring has the keys with a time to live that a transaction found, those that expire first.
// The zero value is empty.
type expiring []expiringKey

type expiringKey struct {
	key []byte
	end time.Time // at the latest
}

// add records a copy of key if it has a time to live.
func (e *expiring) add(key []byte, ttl time.Duration) {
	if ttl == 0 {
		return
	}
	end := time.Now().Add(ttl)
	last := 0
	for i := range *e {
		k := &(*e)[i]
		if bytes.Equal(k.key, key) {
			return
		}
		if k.end.After((*e)[last].end) {
			last = i
		}
	}
	switch {
	case len(*e) < maxExpiring:
		*e = append(*e, expiringKey{bytes.Clone(key), end})
	case end.Before((*e)[last].end):
		(*e)[last] = expiringKey{bytes.Clone(key), end}
	}
}

// keys returns the keys for a commit.
func (e expiring) keys() (keys [][]byte) {
	for i := range e {
		keys = append(keys, e[i].key)
	}
	return keys
}
