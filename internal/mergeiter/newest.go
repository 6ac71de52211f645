package mergeiter

import (
	"bytes"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Newest returns what a reader at a sequence number sees of it, which must be in
// the order of kv.Compare: for each key the newest version of at most that
// number, and nothing for a key whose version is a tombstone.
//
// Ownership: Newest takes it; Close closes it. Errors: those of it, and one for a
// range tombstone that the reader would have to apply; both end the iterator for
// good.
func Newest(it kv.Iterator, at kv.SeqNum) kv.Iterator {
	return &newest{it: it, at: at}
}

// newest is valid when it stands on an entry to show and err is nil.
type newest struct {
	it  kv.Iterator
	at  kv.SeqNum
	key []byte // whose visible version was met; its older ones are hidden
	met bool   // key has a meaning: no key is nil
	err error
}

func (n *newest) First() bool {
	n.met = false
	return n.settle(n.it.First())
}

func (n *newest) SeekGE(key []byte) bool {
	n.met = false
	return n.settle(n.it.SeekGE(key))
}

func (n *newest) Next() bool { return n.Valid() && n.settle(n.it.Next()) }

// settle steps over what is hidden, from where it stands.
func (n *newest) settle(valid bool) bool {
	for ; valid && n.err == nil; valid = n.it.Next() {
		e := n.it.Entry()
		if e.Seq > n.at || (n.met && bytes.Equal(e.Key, n.key)) {
			continue
		}
		if e.Kind == kv.KindRangeDelete {
			n.err = fmt.Errorf("range tombstone of version %d: this reader cannot apply one; delete key by key", e.Seq)
			return false
		}
		n.key, n.met = append(n.key[:0], e.Key...), true
		if e.Kind != kv.KindDelete {
			return true
		}
	}
	return false
}

func (n *newest) Valid() bool      { return n.err == nil && n.it.Valid() }
func (n *newest) Entry() *kv.Entry { return n.it.Entry() }

func (n *newest) Err() error {
	if n.err != nil {
		return n.err
	}
	return n.it.Err()
}

func (n *newest) Close() error {
	if err := n.it.Close(); n.err == nil {
		n.err = err
	}
	return n.err
}
