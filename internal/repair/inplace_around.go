package repair

import (
	"bytes"
	"errors"
	"iter"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
)

// around is what the tables beside a replaced one say of a key. They may have, hidden by a
// tombstone, the very entry that the backup shows; a second one of the same number would be damage.
// Used for keys in order.
type around struct {
	covers  *kv.RangeTombstones // of the older tables and of the replaced one
	whole   kv.Iterator         // of the tables that are not damaged; nil: there is none
	damaged []*entriesOf        // tables that are replaced later
}

// entriesOf reads what verifies in a table, once it is needed.
type entriesOf struct {
	entries iter.Seq2[kv.Entry, error]
	stream  *stream
}

// around returns what is beside a table. An entry of the base may be newer than one of the oldest
// delta, but not for the same key (V7), so for a table of the base that delta is looked at too.
func (b *build) around(r *rewrite, older []manifest.Run, covers *kv.RangeTombstones) around {
	a := around{covers: covers}
	runs := b.runs()
	if r.run == len(runs)-1 && r.run > 0 {
		var whole manifest.Run
		for _, m := range runs[r.run-1] {
			switch other := b.rewrites[m.Num]; {
			case !m.Overlaps(r.table.want.Smallest, r.table.want.Largest):
			case other == nil:
				whole = append(whole, m)
			case other.usable:
				a.damaged = append(a.damaged, &entriesOf{entries: func(yield func(kv.Entry, error) bool) {
					if _, err := b.salvage(m.Num, yield); err != nil && !errors.Is(err, errEnough) {
						yield(kv.Entry{}, err)
					}
				}})
			}
		}
		if len(whole) > 0 {
			older = []manifest.Run{whole} // nothing is older than the base
		}
	}
	if len(older) > 0 {
		a.whole = b.iterate(older)
	}
	return a
}

// newest returns the number of the newest put, delete or range delete of a key; 0: there is none.
func (a *around) newest(key []byte) (kv.SeqNum, error) {
	newest := a.covers.Cover(key, kv.MaxSeqNum)
	if it := a.whole; it != nil {
		for ok := it.SeekGE(key); ok && bytes.Equal(it.Entry().Key, key); ok = it.Next() {
			if it.Entry().Kind != kv.KindRangeDelete {
				newest = max(newest, it.Entry().Seq)
				break
			}
		}
		if err := it.Err(); err != nil {
			return 0, err
		}
	}
	for _, d := range a.damaged {
		if d.stream == nil {
			s, err := newStream(d.entries)
			if d.stream = s; err != nil {
				return 0, err
			}
		}
		for s := d.stream; s.more && bytes.Compare(s.head.Key, key) <= 0; {
			if s.head.Kind != kv.KindRangeDelete && bytes.Equal(s.head.Key, key) {
				newest = max(newest, s.head.Seq)
			}
			if err := s.advance(); err != nil {
				return 0, err
			}
		}
	}
	return newest, nil
}

func (a *around) close() (err error) {
	for _, d := range a.damaged {
		if d.stream != nil {
			d.stream.stop()
		}
	}
	if a.whole != nil {
		err = a.whole.Close()
	}
	return err
}

// stream is entries in order, of which the first is at the head.
type stream struct {
	next func() (kv.Entry, error, bool)
	stop func()
	head kv.Entry
	more bool // there is a head
}

// newStream returns a stream, also after an error. The caller stops it.
func newStream(entries iter.Seq2[kv.Entry, error]) (*stream, error) {
	s := &stream{}
	s.next, s.stop = iter.Pull2(entries)
	return s, s.advance()
}

// advance moves to the next entry.
func (s *stream) advance() (err error) {
	s.head, err, s.more = s.next()
	return err
}

var errEnough = errors.New("no more entries are wanted")

// salvage yields the entries of a table that verify. If yield returns false, it returns errEnough.
func (b *build) salvage(num kv.FileNum, yield func(kv.Entry, error) bool) (found sstable.Salvaged, err error) {
	f, err := b.src.Open(b.source(manifest.TableName(num)))
	if err != nil {
		return found, err
	}
	found, err = sstable.Salvage(b.ctx, f, b.fileID(num), func(e *kv.Entry) error {
		if !yield(*e, nil) {
			return errEnough
		}
		return nil
	})
	return found, errors.Join(err, f.Close())
}
