package history

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/kvd-db/kvd/internal/kv"
)

// keyDigits is the fixed length of a key, so that keys sort like their numbers.
const keyDigits = 7

// Bytes returns the key in the form of the store.
func (k Key) Bytes() []byte {
	b := make([]byte, keyDigits)
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + k%10)
		k /= 10
	}
	return b
}

// ParseKey undoes Key.Bytes.
func ParseKey(b []byte) (Key, error) {
	n, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil || len(b) != keyDigits {
		return 0, fmt.Errorf("%q is not a key of the run", b)
	}
	return Key(n), nil
}

// Bytes returns the value in the form of the store. It contains the key, so that a
// value under a wrong key is detected, and its length varies.
func (v Value) Bytes(k Key) []byte {
	b := make([]byte, 0, 64)
	b = append(b, k.Bytes()...)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(v), 36)
	b = append(b, ':')
	for range uint32(v) % 40 {
		b = append(b, '.')
	}
	return b
}

// ParseValue undoes Value.Bytes.
func ParseValue(k Key, b []byte) (Value, error) {
	var v Value
	if parts := bytes.SplitN(b, []byte(":"), 3); len(parts) == 3 {
		if n, err := strconv.ParseUint(string(parts[1]), 36, 32); err == nil {
			v = Value(n)
		}
	}
	if v == Absent || v == Unseen || !bytes.Equal(b, v.Bytes(k)) {
		return 0, fmt.Errorf("key %d holds %q, which no client wrote there", k, b)
	}
	return v, nil
}

// readOf returns the Read of a lookup.
func readOf(k Key, l *kv.Lookup) (Read, error) {
	if l.Err != nil || !l.Found {
		return Read{Key: k}, l.Err
	}
	v, err := ParseValue(k, l.Value)
	return Read{Key: k, Value: v, Version: l.Version}, err
}

// scanOf returns the Scan of the keys in [from, to).
func scanOf(from, to Key, items []kv.Item) (Scan, error) {
	s := Scan{From: from, To: to}
	for _, item := range items {
		k, err := ParseKey(item.Key)
		if err != nil {
			return s, err
		}
		v, err := ParseValue(k, item.Value)
		if err != nil {
			return s, err
		}
		s.Seen = append(s.Seen, Read{Key: k, Value: v, Version: item.Version})
	}
	return s, nil
}
