package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// shelf holds the entries of a run, a slice for each table.
type shelf struct {
	run    Run
	tables [][]kv.Entry
	open   int           // iterators open now
	most   int           // iterators open at once
	opens  map[int]error // the error of opening a table
	fails  map[int]error // the error of a table after its entries, or before them
	closes map[int]error // the error of closing a table
}

// newShelf returns a run of tables of six entries, two versions of three keys;
// the keys are even numbers.
func newShelf(tables int) *shelf {
	s := &shelf{opens: map[int]error{}, fails: map[int]error{}, closes: map[int]error{}}
	for i := range tables {
		var entries []kv.Entry
		for k := range 3 {
			key := fmt.Appendf(nil, "%03d", 6*i+2*k)
			entries = append(entries, kv.Entry{Key: key, Seq: 5, Kind: kv.KindPut}, kv.Entry{Key: key, Seq: 3, Kind: kv.KindPut})
		}
		t := table(kv.FileNum(i+1), string(entries[0].Key), string(entries[5].Key), 3, 5)
		t.Entries = 6
		s.run = append(s.run, t)
		s.tables = append(s.tables, entries)
	}
	return s
}

func (s *shelf) iterator() kv.Iterator {
	return s.run.NewIterator(func(table int) (kv.Iterator, error) {
		if err := s.opens[table]; err != nil {
			return nil, err
		}
		s.open++
		s.most = max(s.most, s.open)
		return &shelfIterator{s: s, table: table, at: -1}, nil
	})
}

// all returns the entries of the tables from first on.
func (s *shelf) all(first int) (all []kv.Entry) {
	for _, entries := range s.tables[first:] {
		all = append(all, entries...)
	}
	return all
}

// shelfIterator walks one table of a shelf.
type shelfIterator struct {
	s     *shelf
	table int
	at    int // -1 before the first move
	err   error
}

func (it *shelfIterator) entries() []kv.Entry { return it.s.tables[it.table] }
func (it *shelfIterator) Valid() bool         { return it.at >= 0 && it.at < len(it.entries()) }
func (it *shelfIterator) Entry() *kv.Entry    { return &it.entries()[it.at] }
func (it *shelfIterator) Err() error          { return it.err }
func (it *shelfIterator) First() bool         { return it.move(0) }
func (it *shelfIterator) Next() bool          { return it.move(it.at + 1) }

func (it *shelfIterator) SeekGE(key []byte) bool {
	at := 0
	for at < len(it.entries()) && bytes.Compare(it.entries()[at].Key, key) < 0 {
		at++
	}
	return it.move(at)
}

func (it *shelfIterator) Last() bool { return it.move(len(it.entries()) - 1) }
func (it *shelfIterator) Prev() bool { return it.move(it.at - 1) }

func (it *shelfIterator) SeekLT(key []byte) bool {
	at := len(it.entries()) - 1
	for at >= 0 && bytes.Compare(it.entries()[at].Key, key) >= 0 {
		at--
	}
	return it.move(at)
}

func (it *shelfIterator) move(at int) bool {
	it.at = at
	if !it.Valid() {
		it.err = it.s.fails[it.table]
	}
	return it.Valid()
}

func (it *shelfIterator) Close() error {
	it.s.open--
	return errors.Join(it.err, it.s.closes[it.table])
}

// walk returns the current entry of the iterator and all that follow.
func walk(it kv.Iterator, valid bool) (all []kv.Entry) {
	for ; valid; valid = it.Next() {
		all = append(all, *it.Entry())
	}
	return all
}

// walkBack returns the current entry of a backward walk and all that follow, in the
// order of the run.
func walkBack(it kv.Iterator, valid bool) (all []kv.Entry) {
	for ; valid; valid = it.Prev() {
		all = append(all, *it.Entry())
	}
	slices.Reverse(all)
	return all
}

func TestRunIteratorIsOneIterator(t *testing.T) {
	s := newShelf(10)
	it := s.iterator()
	require.False(t, it.Valid())
	require.False(t, it.Next())
	require.False(t, it.Prev())
	require.Zero(t, s.open, "nothing is open before the first move")
	for range 2 {
		require.Equal(t, s.all(0), walk(it, it.First()))
		require.Equal(t, s.all(0), walkBack(it, it.Last()))
	}
	for key := range 62 {
		from := fmt.Appendf(nil, "%03d", key)
		var before, after []kv.Entry
		for _, e := range s.all(0) {
			if bytes.Compare(e.Key, from) < 0 {
				before = append(before, e)
			} else {
				after = append(after, e)
			}
		}
		require.Equal(t, after, walk(it, it.SeekGE(from)))
		require.NoError(t, it.Err())
		require.Equal(t, before, walkBack(it, it.SeekLT(from)))
		require.NoError(t, it.Err())
	}
	require.Equal(t, 1, s.most, "one table at a time")
	require.True(t, it.First())
	require.NoError(t, it.Close())
	require.NoError(t, it.Close())
	require.False(t, it.Valid())
	require.False(t, it.First(), "closed")
	require.False(t, it.Last(), "closed")
	require.Zero(t, s.open)

	empty := newShelf(0).iterator()
	require.False(t, empty.First())
	require.False(t, empty.SeekGE([]byte("a")))
	require.False(t, empty.Last())
	require.False(t, empty.SeekLT([]byte("a")))
	require.NoError(t, empty.Close())
}

// The bounds of a table include the ends of its range tombstones, which are not keys of
// the table.
func TestRunIteratorSeeksBehindTheKeysOfATable(t *testing.T) {
	s := newShelf(2)
	s.run[0].Largest = []byte("005")
	it := s.iterator()
	require.Equal(t, s.tables[1], walk(it, it.SeekGE([]byte("005"))))
	require.Equal(t, s.tables[0], walkBack(it, it.SeekLT([]byte("005"))))
	require.NoError(t, it.Close())
}

func TestRunIteratorHasOneDirection(t *testing.T) {
	it := newShelf(2).iterator()
	require.True(t, it.First())
	require.Panics(t, func() { it.Prev() })
	require.True(t, it.SeekGE([]byte("003")))
	require.Panics(t, func() { it.Prev() })
	require.True(t, it.Last())
	require.Panics(t, func() { it.Next() })
	require.True(t, it.SeekLT([]byte("003")))
	require.Panics(t, func() { it.Next() })
	require.NoError(t, it.Close())
}

func TestRunIteratorStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		spoil func(*shelf)
		given int // entries before the error
		back  int // entries after it
	}{
		"a table cannot be opened": {func(s *shelf) { s.opens[1] = broken }, 6, 6},
		"a table fails on the way": {func(s *shelf) { s.fails[1] = broken; s.tables[1] = s.tables[1][:4] }, 10, 10},
		"a table cannot be closed": {func(s *shelf) { s.closes[0], s.closes[2] = broken, broken }, 6, 6},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(3)
			c.spoil(s)
			it := s.iterator()
			require.Len(t, walk(it, it.First()), c.given)
			require.False(t, it.Valid())
			require.ErrorIs(t, it.Err(), broken)
			require.False(t, it.Next())
			require.False(t, it.First(), "for good")
			require.ErrorIs(t, it.Close(), broken)

			it = s.iterator()
			require.Len(t, walkBack(it, it.Last()), c.back)
			require.False(t, it.Valid())
			require.ErrorIs(t, it.Err(), broken)
			require.False(t, it.Prev())
			require.False(t, it.Last(), "for good")
			require.ErrorIs(t, it.Close(), broken)
			require.Zero(t, s.open)
		})
	}
}

func TestRunIteratorMissesNoEntryOfATable(t *testing.T) {
	for entries, reason := range map[uint64]string{
		5: "table ends after 6 entries, the manifest says 5",
		7: "table ends after 6 entries, the manifest says 7",
	} {
		s := newShelf(3)
		s.run[1].Entries = entries
		for name, begin := range map[string]func(kv.Iterator) bool{
			"first":                 kv.Iterator.First,
			"seek in another table": func(it kv.Iterator) bool { return it.SeekGE([]byte("004")) },
		} {
			it := s.iterator()
			walk(it, begin(it))
			requireMiscounted(t, it, name, reason)
			require.Zero(t, s.open)
		}
		for name, begin := range map[string]func(kv.Iterator) bool{
			"last":                  kv.Iterator.Last,
			"seek in another table": func(it kv.Iterator) bool { return it.SeekLT([]byte("014")) },
		} {
			it := s.iterator()
			walkBack(it, begin(it))
			requireMiscounted(t, it, name, reason)
			require.Zero(t, s.open)
		}
		it := s.iterator()
		require.Len(t, walk(it, it.SeekGE([]byte("008"))), 4+6, "a walk that begins later does not count")
		require.Len(t, walkBack(it, it.SeekLT([]byte("010"))), 6+4, "nor one that ends earlier")
		require.NoError(t, it.Close())
	}
}

// requireMiscounted checks that the walk ended with the damage of table 2, and closes it.
func requireMiscounted(t *testing.T, it kv.Iterator, name, reason string) {
	t.Helper()
	var damage *kv.CorruptionError
	require.ErrorAs(t, it.Err(), &damage, name)
	require.Equal(t, TableName(2), damage.File)
	require.ErrorContains(t, damage, reason)
	require.ErrorIs(t, it.Close(), damage)
}
