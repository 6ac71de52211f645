package kvd

import (
	"bytes"
	"time"
)

// maxExpiring is how many keys that expire a commit names. One would do, that which
// expires first, but for answers that took their time: the client knows the end of a
// time to live only as exactly as that.
const maxExpiring = 64

// expiring are keys that a transaction found with a time to live: the ones that end
// first. The zero value is empty.
type expiring []expiringKey

type expiringKey struct {
	key []byte
	end time.Time // at the latest
}

// add notes a key, and copies it, if it has a time to live.
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

// keys returns them for a commit.
func (e expiring) keys() (keys [][]byte) {
	for i := range e {
		keys = append(keys, e[i].key)
	}
	return keys
}
