package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
)

// rangesStore is a closed store whose runs have several tables: a base, a delta above it, and
// value files; and what it holds.
type rangesStore struct {
	disk   *vfs.Mem
	opts   Options
	want   map[string]string
	tables map[string]kv.TableMeta // by path
}

func newRangesStore(t testing.TB) *rangesStore {
	s := &rangesStore{disk: vfs.NewMem(), want: map[string]string{}, tables: map[string]kv.TableMeta{}}
	s.opts = scrubOptions(s.disk)
	s.opts.Partitions, s.opts.tableBytes = 1, 4<<10
	e := open(t, s.opts)
	write := func(from, to, step, size int) {
		for i := from; i < to; i += step {
			s.want[key(i)] = fmt.Sprintf("%d of %d ", size, i) + strings.Repeat("v", size)
			put(t, e, key(i), s.want[key(i)], buffered)
		}
	}
	write(0, 400, 1, 60)
	write(0, 400, 9, 300) // kept apart
	require.NoError(t, e.CompactAll(t.Context()))
	write(100, 300, 40, 20) // too little for a merge
	for i := 105; i < 300; i += 50 {
		del(t, e, key(i), buffered)
		delete(s.want, key(i))
	}
	require.NoError(t, e.Flush(t.Context()))
	ref := e.partitions[0].AcquireFiles()
	require.Greater(t, len(ref.Base), 4)
	require.Len(t, ref.Deltas, 1)
	for m := range ref.Tables() {
		s.tables["data/p-0000/"+manifest.TableName(m.Num)] = *m
	}
	ref.Release()
	require.NoError(t, e.Close())
	return s
}

// check reads everything. A key is right, or lost if mayLose allows that. It returns how many
// were lost.
func (s *rangesStore) check(t testing.TB, e *Engine, what string, mayLose func(key string) bool) (lost int) {
	t.Helper()
	for i := range 400 {
		k := key(i)
		item, err := e.Get(t.Context(), []byte(k))
		want, there := s.want[k]
		switch {
		case errors.Is(err, kv.ErrCorrupt):
			require.True(t, mayLose(k), "%s: key %s is lost: %v", what, k, err)
			lost++
		case !there:
			require.ErrorIs(t, err, kv.ErrNotFound, "%s: key %s", what, k)
		default:
			require.NoError(t, err, "%s: key %s", what, k)
			require.Equal(t, want, string(item.Value), "%s: key %s", what, k)
		}
	}
	return lost
}

// scan returns the keys of a range, up to an error of damage.
func (s *rangesStore) scan(t testing.TB, e *Engine, r kv.Range, reverse bool) (keys []string, err error) {
	t.Helper()
	it, err := e.Scan(t.Context(), r, kv.ScanOptions{Reverse: reverse})
	require.NoError(t, err)
	for it.Next() {
		require.Equal(t, s.want[string(it.Item().Key)], string(it.Item().Value))
		keys = append(keys, string(it.Item().Key))
	}
	err = it.Err()
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		require.ErrorIs(t, err, kv.ErrCorrupt)
	}
	return keys, err
}

// keysOf returns the live keys in a range, in order.
func (s *rangesStore) keysOf(r kv.Range) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.want)), func(k string) bool { return !r.Contains([]byte(k)) })
}

// A table that is missing, cut or cannot be opened makes its own keys unreadable, and nothing
// else: not other keys, not scans outside of it, not merges of other tables. So does a damaged
// data block, without AllowDamaged.
func TestADamagedTableMakesOnlyItsKeysUnreadable(t *testing.T) {
	t.Parallel()
	s := newRangesStore(t)
	all := files(t, s.disk)
	step := 1
	if testsize.Reduced() {
		step = 4
	}
	names := slices.Sorted(maps.Keys(s.tables))
	for i := 0; i < len(names); i += step {
		name, content := names[i], all[names[i]]
		meta := s.tables[name]
		other := names[(i+1)%len(names)]
		for what, damaged := range map[string][]byte{
			"removal": nil, "truncation": content[:len(content)/2], "emptiness": {},
			"a flip in the footer": flipped(content, len(content)-30), "a flip in the tail": flipped(content, len(content)-150),
			"a flip in the data": flipped(content, 10), "another table": all[other],
		} {
			s.serveDamaged(t, what+" of "+name, name, damaged, &meta)
		}
	}
}

func flipped(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 4
	return b
}

func (s *rangesStore) serveDamaged(t testing.TB, what, name string, content []byte, meta *kv.TableMeta) {
	t.Helper()
	disk := (&damageStore{disk: s.disk}).damaged(t, name, content)
	o := s.opts
	o.FS = disk
	var failed atomic.Int64
	o.Events = &event.Listener{Compaction: func(c event.Compaction) {
		if c.Err != nil {
			failed.Add(1)
		}
	}}
	if e, err := Open("data", o); err == nil {
		require.Contains(t, what, "flip in the data")
		require.NoError(t, e.Close())
	} else {
		require.ErrorIs(t, err, kv.ErrCorrupt, what)
		require.ErrorContains(t, err, path.Base(name), what)
	}
	o.AllowDamaged = true
	e, err := Open("data", o)
	require.NoError(t, err, what)
	defer func() { require.NoError(t, e.Close()) }()
	inside := func(k string) bool { return k >= string(meta.Smallest) && k <= string(meta.Largest) }
	lost := s.check(t, e, what, inside)
	require.Positive(t, lost, what)

	// Scans.
	before, after := kv.Range{End: meta.Smallest}, kv.Range{Start: append(slices.Clone(meta.Largest), 0)}
	for _, r := range []kv.Range{before, after} {
		keys, err := s.scan(t, e, r, false)
		require.NoError(t, err, what)
		require.True(t, slices.Equal(s.keysOf(r), keys), what)
		back, err := s.scan(t, e, r, true)
		require.NoError(t, err, what)
		slices.Reverse(back)
		require.True(t, slices.Equal(keys, back), what)
	}
	keys, err := s.scan(t, e, kv.Range{}, false)
	require.Error(t, err, what)
	require.True(t, slices.Equal(s.keysOf(kv.Range{})[:len(keys)], keys), "%s: a scan ends at the damage, or before", what)
	if !strings.Contains(what, "flip in the data") {
		require.True(t, slices.Equal(s.keysOf(before), keys), "%s: a scan ends exactly at the table", what)
		back, err := s.scan(t, e, kv.Range{}, true)
		require.Error(t, err, what)
		slices.Reverse(back)
		require.True(t, slices.Equal(s.keysOf(after), back), "%s: a backward scan ends exactly at the table", what)
	}

	// Merges leave the table alone, and come to an end.
	p := e.partitions[0]
	for range 20 {
		if did, _ := p.Compact(t.Context()); !did {
			break
		}
	}
	did, err := p.Compact(t.Context())
	require.NoError(t, err, what)
	require.False(t, did, what)
	require.LessOrEqual(t, failed.Load(), int64(1), "%s: merges that met the damage", what)
	ref := p.AcquireFiles()
	kept := false
	for m := range ref.Tables() {
		kept = kept || m.Num == meta.Num
	}
	ref.Release()
	require.True(t, kept, "%s: the table is kept", what)
	require.Equal(t, lost, s.check(t, e, what, inside))

	// What is written again can be read, also from tables.
	k := string(meta.Smallest)
	put(t, e, k, "again", buffered)
	require.NoError(t, e.Flush(context.Background()))
	got, there := get(t, e, k)
	require.True(t, there)
	require.Equal(t, "again", got)
}

// Deleting the range of a damaged table drops the table unread, and everything works again.
func TestDeletingADamagedRangeRepairsTheStore(t *testing.T) {
	s := newRangesStore(t)
	var name string
	for other, m := range s.tables { // any of the base
		if name == "" || m.Num < s.tables[name].Num {
			name = other
		}
	}
	meta := s.tables[name]
	o := s.opts
	o.FS, o.AllowDamaged = (&damageStore{disk: s.disk}).damaged(t, name, nil), true
	e := open(t, o)
	require.Len(t, e.Damages(), 1)
	_, err := e.DeleteRange(t.Context(), kv.Range{Start: meta.Smallest, End: append(slices.Clone(meta.Largest), 0)}, buffered)
	require.NoError(t, err)
	for k := range s.want {
		if k >= string(meta.Smallest) && k <= string(meta.Largest) {
			delete(s.want, k)
		}
	}
	require.NoError(t, e.Flush(t.Context()))
	testwait.Until(t, func() bool { return len(e.Damages()) == 0 }, "the table is dropped unread")
	require.NoError(t, e.CompactAll(t.Context()))
	require.Zero(t, s.check(t, e, "after the range delete", func(string) bool { return false }))
	damages, _ := found(t, e)
	require.Empty(t, damages)
	require.NoError(t, e.Close())
	o.AllowDamaged = false
	e = open(t, o)
	require.Zero(t, s.check(t, e, "opened again", func(string) bool { return false }))
}

// The first merge that reads a damaged table fails; the next one goes on around it.
func TestCompactAllGoesOnBesideADamagedTable(t *testing.T) {
	t.Parallel()
	s := newRangesStore(t)
	for name := range s.tables {
		o := s.opts
		content := files(t, s.disk)[name]
		o.FS = (&damageStore{disk: s.disk}).damaged(t, name, flipped(content, len(content)/3))
		e := open(t, o)
		require.ErrorIs(t, e.CompactAll(t.Context()), kv.ErrCorrupt, name)
		require.NoError(t, e.CompactAll(t.Context()), name)
		require.NotEmpty(t, e.Damages())
		for range 3 {
			put(t, e, "new", strings.Repeat("n", 100), buffered)
			require.NoError(t, e.Flush(t.Context()))
		}
		require.NoError(t, e.CompactAll(t.Context()), name)
		require.LessOrEqual(t, e.partitions[0].Deltas(), 2, name)
		require.NoError(t, e.Close())
	}
}

// A value file that is missing, cut or damaged makes the keys of its values unreadable.
func TestADamagedValueFileMakesItsKeysUnreadable(t *testing.T) {
	s := newRangesStore(t)
	all := files(t, s.disk)
	for name, content := range all {
		if path.Ext(name) != ".val" {
			continue
		}
		for what, damaged := range map[string][]byte{
			"removal": nil, "truncation": content[:len(content)/2], "a flip in the footer": flipped(content, len(content)-30), "a flipped value": flipped(content, 100),
		} {
			o := s.opts
			o.FS, o.AllowDamaged = (&damageStore{disk: s.disk}).damaged(t, name, damaged), true
			e := open(t, o)
			lost := s.check(t, e, what, func(k string) bool { return len(s.want[k]) >= DefaultValueThreshold })
			require.Positive(t, lost, what)
			if what == "a flipped value" {
				require.Equal(t, 1, lost, "no other value")
			}
			require.NotEmpty(t, e.Damages())
			require.NoError(t, e.Close())
		}
	}
}

// Without a manifest or the log the store is refused all the same.
func TestOtherDamageIsNotAllowed(t *testing.T) {
	d := newDamageStore(t)
	for name := range files(t, d.disk) {
		base := path.Base(name)
		if path.Ext(name) == ".sst" || path.Ext(name) == ".val" || base == "LOCK" || base == "BALLAST" || path.Ext(name) == ".wal" {
			continue
		}
		o := d.opts
		o.FS, o.AllowDamaged = d.damaged(t, name, nil), true
		_, err := Open("data", o)
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
	}
}
