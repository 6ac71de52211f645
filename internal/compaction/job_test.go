package compaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// shelf is a directory of real tables and value files in memory.
type shelf struct {
	t      require.TestingT
	fs     vfs.FS
	next   kv.FileNum
	open   map[kv.FileNum]int // iterators open now, of each table
	values *valuefile.Set
	rule   ValueRule // of jobs
}

func newShelf(t require.TestingT) *shelf {
	s := &shelf{t: t, next: 1, open: map[kv.FileNum]int{}}
	s.turnTo(vfs.NewMem())
	s.rule.FileBytes = 300
	s.rule.Read = func(p kv.ValuePointer) ([]byte, error) { return s.values.Read(p, nil) }
	return s
}

// turnTo continues with the files of another disk.
func (s *shelf) turnTo(disk vfs.FS) {
	if s.values != nil {
		_ = s.values.Close() // errors of the old disk do not matter any more
	}
	s.fs = disk
	s.values = valuefile.NewSet(func(num kv.FileNum) (*valuefile.Reader, error) {
		f, err := s.fs.Open(s.valuesName(num))
		if err != nil {
			return nil, err
		}
		r, err := valuefile.Open(f, kv.FileID{Partition: 3, Num: num})
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return r, nil
	})
}

func (s *shelf) name(num kv.FileNum) string { return "/" + manifest.TableName(num) }

func (s *shelf) valuesName(num kv.FileNum) string { return "/" + manifest.ValuesName(num) }

func (s *shelf) Create(kind manifest.FileKind) (vfs.File, kv.FileID, error) {
	id := kv.FileID{Partition: 3, Num: s.next}
	s.next++
	name := s.name(id.Num)
	if kind == manifest.FileValues {
		name = s.valuesName(id.Num)
	}
	f, err := s.fs.Create(name)
	return f, id, err
}

func (s *shelf) Remove(kind manifest.FileKind, num kv.FileNum) error {
	name := s.name(num)
	if kind == manifest.FileValues {
		name = s.valuesName(num)
		require.NoError(s.t, s.values.Drop(num))
	}
	err := s.fs.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// shelfIterator closes the reader with the iterator.
type shelfIterator struct {
	kv.Iterator
	close func() error
}

func (i *shelfIterator) Close() error { return errors.Join(i.Iterator.Close(), i.close()) }

func (s *shelf) Open(t *kv.TableMeta) (kv.Iterator, error) {
	f, err := s.fs.Open(s.name(t.Num))
	if err != nil {
		return nil, err
	}
	r, err := sstable.Open(f, kv.FileID{Partition: 3, Num: t.Num}, nil)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.open[t.Num]++
	return &shelfIterator{r.NewIterator(sstable.IterOptions{}), func() error {
		s.open[t.Num]--
		if s.open[t.Num] == 0 {
			delete(s.open, t.Num)
		}
		return r.Close()
	}}, nil
}

// put stores sorted entries as a run with tables of at most the given count.
func (s *shelf) put(perTable int, entries ...kv.Entry) manifest.Run {
	var run manifest.Run
	for len(entries) > 0 {
		n := min(perTable, len(entries))
		for n < len(entries) && bytes.Equal(entries[n-1].Key, entries[n].Key) {
			n++
		}
		f, id, err := s.Create(manifest.FileTable)
		require.NoError(s.t, err)
		w := sstable.NewWriter(f, id, sstable.WriterOptions{BlockBytes: 64})
		for i := range entries[:n] {
			require.NoError(s.t, w.Add(&entries[i]))
		}
		meta, err := w.Finish()
		require.NoError(s.t, err)
		require.NoError(s.t, f.Close())
		run = append(run, meta)
		entries = entries[n:]
	}
	return run
}

// entries reads a run.
func (s *shelf) entries(run manifest.Run) []kv.Entry {
	var all []kv.Entry
	it := run.NewIterator(func(table int) (kv.Iterator, error) { return s.Open(&run[table]) })
	for ok := it.First(); ok; ok = it.Next() {
		e := *it.Entry()
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		if e.Apart {
			e.Value, e.Apart = s.value(e.Value), false
		}
		all = append(all, e)
	}
	require.NoError(s.t, it.Err())
	require.NoError(s.t, it.Close())
	return all
}

// value reads a separated value.
func (s *shelf) value(pointer []byte) []byte {
	p, ok := kv.ParseValuePointer(pointer)
	require.True(s.t, ok)
	value, err := s.values.Read(p, nil)
	require.NoError(s.t, err)
	return value
}

// job returns a Job that cuts small tables.
func (s *shelf) job(c Choice, rule Rule) Job {
	return Job{Choice: c, Rule: rule, Open: s.Open, Outputs: s, Values: s.rule, TableBytes: 200, Writer: sstable.WriterOptions{BlockBytes: 64}}
}

func (s *shelf) requireNoneOpen() { require.Empty(s.t, s.open, "iterators were left open") }

func put(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Value: fmt.Appendf(nil, "value of %s at %d", key, seq), Seq: seq, Kind: kv.KindPut}
}

func del(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindDelete}
}

// brief formats entries: a put is "a5", a delete "-a5".
func brief(entries []kv.Entry) string {
	var parts []string
	for _, e := range entries {
		sign := map[kv.Kind]string{kv.KindDelete: "-", kv.KindRangeDelete: "~"}[e.Kind]
		parts = append(parts, fmt.Sprintf("%s%s%d", sign, e.Key, e.Seq))
	}
	return fmt.Sprint(parts)
}

// E7: the newest value is kept, deleted keys are gone from the file, and what a
// snapshot can see stays.
func TestMergesKeepWhatSomebodyCanSee(t *testing.T) {
	for name, c := range map[string]struct {
		kind      manifest.EditKind
		snapshots Snapshots
		want      string
		dropped   [2]uint64 // superseded, tombstones
	}{
		"deltas keep tombstones":       {manifest.CompactDeltas, nil, "[a9 -b8 c5 -d7 e1]", [2]uint64{4, 0}},
		"base drops them":              {manifest.CompactBase, nil, "[a9 c5 e1]", [2]uint64{4, 2}},
		"a snapshot keeps its version": {manifest.CompactBase, Snapshots{4}, "[a9 a4 -b8 b3 c5 -d7 d2 e1]", [2]uint64{1, 0}},
		"a snapshot sees a tombstone":  {manifest.CompactBase, Snapshots{7}, "[a9 a4 -b8 b3 c5 e1]", [2]uint64{2, 1}},
		"snapshots of everything":      {manifest.CompactDeltas, Snapshots{1, 2, 3, 4, 5, 6, 7, 8, 9}, "[a9 a4 a1 -b8 b3 c5 -d7 d2 e1]", [2]uint64{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			newer := s.put(2, put("a", 9), del("b", 8), del("d", 7))
			older := s.put(2, put("a", 4), put("b", 3), put("c", 5), put("d", 2))
			oldest := s.put(2, put("a", 1), put("e", 1))
			choice := Choice{Kind: c.kind, Deltas: []manifest.Run{newer, older, oldest}}
			if c.kind == manifest.CompactBase {
				choice = Choice{Kind: c.kind, Deltas: []manifest.Run{newer, older}, Base: oldest}
			}
			got, err := Run(t.Context(), s.job(choice, Rule{Snapshots: c.snapshots}))
			require.NoError(t, err)
			assert.Equal(t, c.want, brief(s.entries(got.Tables)))
			assert.Equal(t, uint64(9), got.Read)
			assert.Equal(t, c.dropped, [2]uint64{got.Superseded, got.Tombstones})
			s.requireNoneOpen()
		})
	}
}

func TestAMergeThatDropsAllMakesNoTable(t *testing.T) {
	s := newShelf(t)
	got, err := Run(t.Context(), s.job(Choice{
		Kind: manifest.CompactBase, Deltas: []manifest.Run{s.put(9, del("a", 2), del("b", 4))}, Base: s.put(9, put("a", 1)),
	}, Rule{}))
	require.NoError(t, err)
	require.Empty(t, got.Tables)
	require.Equal(t, Result{Read: 3, Superseded: 1, Tombstones: 2}, got)
	require.Equal(t, kv.FileNum(3), s.next, "not even a file was made")
}

func TestTablesAreCutBetweenKeys(t *testing.T) {
	s := newShelf(t)
	var entries []kv.Entry
	for i := range 200 {
		key := fmt.Sprintf("%03d", i/20)
		entries = append(entries, put(key, kv.SeqNum(1000-i)))
	}
	everything := make(Snapshots, 1000)
	for i := range everything {
		everything[i] = kv.SeqNum(i + 1)
	}
	got, err := Run(t.Context(), s.job(Choice{Kind: manifest.CompactDeltas, Deltas: []manifest.Run{s.put(500, entries...)}}, Rule{Snapshots: everything}))
	require.NoError(t, err)
	require.Equal(t, entries, s.entries(got.Tables))
	require.Len(t, got.Tables, 10, "a table for each key, though that is more than 200 bytes")
}

// underATombstone returns entries "000" to "199" of numbers 1001 and up, and among them
// an older range tombstone of ["0095", "150").
func underATombstone() []kv.Entry {
	var entries []kv.Entry
	for i := range 200 {
		if i == 10 {
			entries = append(entries, *tombstone("0095", "150", 900))
		}
		entries = append(entries, put(fmt.Sprintf("%03d", i), kv.SeqNum(i+1001)))
	}
	return entries
}

func TestARangeTombstoneIsCutWhereATableIs(t *testing.T) {
	s := newShelf(t)
	entries := underATombstone()
	got, err := Run(t.Context(), s.job(Choice{Kind: manifest.CompactDeltas, Deltas: []manifest.Run{s.put(500, entries...)}}, Rule{}))
	require.NoError(t, err)
	require.Greater(t, len(got.Tables), 15)
	end, pieces := "0095", uint64(0)
	var rest []kv.Entry
	for i, table := range got.Tables {
		require.Less(t, table.Size, uint64(2000), "no table is gigantic")
		if i > 0 {
			require.Less(t, string(got.Tables[i-1].Largest), string(table.Smallest))
		}
		for _, e := range s.entries(manifest.Run{table}) {
			if e.Kind != kv.KindRangeDelete {
				rest = append(rest, e)
				continue
			}
			pieces++
			require.Equal(t, end, string(e.Key), "each begins where the last one ends")
			require.Equal(t, kv.SeqNum(900), e.Seq)
			end = string(e.Value)
		}
	}
	require.Equal(t, "150", end)
	require.Greater(t, pieces, uint64(10))
	require.Equal(t, pieces-1, got.Pieces)
	require.Equal(t, slices.DeleteFunc(entries, func(e kv.Entry) bool { return e.Kind == kv.KindRangeDelete }), rest)
}

// Entries that wait for the end of a range tombstone take bounded memory.
func TestTablesUnderARangeTombstoneAreSmaller(t *testing.T) {
	testsize.OneGoroutine(t)
	s := newShelf(t)
	entries := underATombstone()
	for i := range entries {
		if entries[i].Kind == kv.KindPut {
			entries[i].Value = bytes.Repeat([]byte{byte(i)}, 128<<10)
		}
	}
	job := s.job(Choice{Kind: manifest.CompactDeltas, Deltas: []manifest.Run{s.put(500, entries...)}}, Rule{})
	job.TableBytes = 20 << 20
	got, err := Run(t.Context(), job)
	require.NoError(t, err)
	require.Len(t, got.Tables, 3, "%s", got.Tables)
	for i, table := range got.Tables {
		require.Less(t, table.Size, uint64(maxWaiting+2<<20), "table %d", i)
		require.Equal(t, uint64(1), table.Deletes, "table %d", i)
	}
}

func TestWhereRangeTombstonesAreCut(t *testing.T) {
	long := func(end string) []byte {
		return append(bytes.Repeat([]byte("k"), kv.MaxKeyBytes-len(end)), end...)
	}
	for name, c := range map[string]struct{ last, next, want []byte }{
		"after the last key":     {[]byte("a"), []byte("c"), []byte("a\x00")},
		"at the next key":        {[]byte("a"), []byte("a\x00"), []byte("a\x00")},
		"after a key of zeros":   {[]byte{0}, []byte{0, 1}, []byte{0, 0}},
		"after a longest key":    {long("ab"), long("b"), append(long("ab")[:kv.MaxKeyBytes-2], 'b', 0)},
		"no place at the next":   {long("ab"), append(long("")[:kv.MaxKeyBytes-2], 'b'), nil},
		"no place for neighbors": {long("ab"), long("ac"), nil},
		"after the last of all":  {bytes.Repeat([]byte{0xff}, kv.MaxKeyBytes), nil, nil},
	} {
		got := cutBetween(c.last, c.next)
		require.Equal(t, c.want, got, name)
		if got != nil {
			require.Greater(t, string(got), string(c.last), name)
			require.LessOrEqual(t, string(got), string(c.next), name)
			require.LessOrEqual(t, len(got), kv.MaxKeyBytes, name)
		}
	}
}

func TestWrongCountsAndOrderAreDamage(t *testing.T) {
	for name, spoil := range map[string]func(s *shelf, c *Choice){
		"an entry less than promised": func(_ *shelf, c *Choice) { c.Deltas[0][0].Entries++ },
		"an entry more than promised": func(_ *shelf, c *Choice) { c.Deltas[0][0].Entries-- },
		"the same version twice": func(s *shelf, c *Choice) {
			c.Deltas = append(c.Deltas, s.put(9, put("b", 2)))
		},
		"tables out of order": func(_ *shelf, c *Choice) { slices.Reverse(c.Deltas[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			c := Choice{Kind: manifest.CompactDeltas, Deltas: []manifest.Run{s.put(1, put("a", 1), put("b", 2), put("c", 3))}}
			spoil(s, &c)
			inputs, err := s.fs.List("/")
			require.NoError(t, err)
			_, err = Run(t.Context(), s.job(c, Rule{}))
			require.ErrorIs(t, err, kv.ErrCorrupt)
			left, err := s.fs.List("/")
			require.NoError(t, err)
			require.Equal(t, inputs, left)
			s.requireNoneOpen()
		})
	}
}

// A merge whose context ends stops at its next check, and leaves no output.
func TestAMergeEndsWithItsContext(t *testing.T) {
	s := newShelf(t)
	big := bytes.Repeat([]byte("x"), 10_000)
	var entries []kv.Entry
	for i := range 100 {
		e := put(fmt.Sprintf("%03d", i), 1)
		e.Value = big
		entries = append(entries, e)
	}
	run := s.put(50, entries...)
	before := s.next
	ctx, cancel := context.WithCancel(t.Context())
	job := s.job(Choice{Kind: manifest.CompactBase, Deltas: []manifest.Run{run}}, Rule{})
	read := 0
	open := job.Open
	job.Open = func(m *kv.TableMeta) (kv.Iterator, error) {
		it, err := open(m)
		return &watchedIterator{it, func() {
			if read++; read == 50 {
				cancel()
			}
		}}, err
	}
	_, err := Run(ctx, job)
	require.ErrorIs(t, err, context.Canceled)
	require.Greater(t, s.next, before, "it had begun to write")
	require.LessOrEqual(t, read, 50+paceBytes/10_000+2)
	_, err = Run(ctx, job)
	require.ErrorIs(t, err, context.Canceled)
	for num := before; num < s.next; num++ {
		_, err := s.fs.Stat(s.name(num))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	s.requireNoneOpen()
}

// watchedIterator reports its moves.
type watchedIterator struct {
	kv.Iterator
	moves func()
}

func (w *watchedIterator) Next() bool {
	w.moves()
	return w.Iterator.Next()
}

// Every operation of a merge fails, once or from then on: inputs are unchanged, no output
// is left that could be removed, no file stays open, and without the fault the merge works.
func TestEveryFaultLeavesInputsAloneAndNoOutput(t *testing.T) {
	testsize.OneGoroutine(t)
	build := func(s *shelf) Choice {
		s.rule.Threshold = 1
		var newer, older []kv.Entry
		for i := range 24 {
			older = append(older, put(fmt.Sprintf("%03d", i), 1))
			if i%3 == 0 {
				newer = append(newer, del(fmt.Sprintf("%03d", i), 2))
			}
		}
		base, err := Run(t.Context(), s.job(Choice{Kind: manifest.CompactBase, Base: s.put(12, older...)}, Rule{}))
		require.NoError(t, err)
		c := Choice{Kind: manifest.CompactBase, Deltas: []manifest.Run{s.put(5, newer...)}, Base: base.Tables}
		for _, m := range base.Values[1:] { // nothing is read of the first one
			c.Rewrite = append(c.Rewrite, m.Num)
		}
		require.NotEmpty(t, c.Rewrite)
		return c
	}
	for _, fault := range []faultfs.Fault{
		{Err: syscall.EIO}, {Err: syscall.ENOSPC, Short: 7}, {Err: syscall.EIO, DropDirty: true},
	} {
		for _, sticky := range []bool{false, true} {
			for i := 0; ; i++ {
				s := newShelf(t)
				c := build(s)
				mem := s.fs.(*vfs.Mem)
				before := mem.CrashImage(vfs.KeepAll, nil)
				inputs, err := mem.List("/")
				require.NoError(t, err)
				faulty := faultfs.Wrap(mem, faultfs.At(i, sticky, fault))
				s.turnTo(faulty)
				got, err := Run(t.Context(), s.job(c, Rule{}))
				if !faulty.Fired() {
					require.NoError(t, err)
					require.Greater(t, i, 40)
					break
				}
				if err == nil { // a read that failed once was tried again
					require.False(t, sticky, "operation %d", i)
					s.turnTo(mem)
					require.Len(t, s.entries(got.Tables), 16)
					continue
				}
				require.ErrorIs(t, err, fault.Err)
				require.Empty(t, got)
				s.requireNoneOpen()
				left, listErr := mem.List("/")
				require.NoError(t, listErr)
				if sticky {
					for _, name := range left { // the error names files that could not be removed
						if !slices.Contains(inputs, name) {
							require.ErrorContains(t, err, name)
						}
					}
				} else {
					require.Equal(t, inputs, left, "operation %d", i)
				}
				s.turnTo(before)
				want := s.entries(c.Base)
				s.turnTo(mem)
				require.Equal(t, want, s.entries(c.Base))
				got, err = Run(t.Context(), s.job(c, Rule{}))
				require.NoError(t, err)
				require.Len(t, s.entries(got.Tables), 16)
			}
		}
	}
}

// A bit flip on disk ends the merge; it is never copied into a new
// table with a fresh checksum.
func TestDamagedInputIsNotCopied(t *testing.T) {
	testsize.OneGoroutine(t)
	s := newShelf(t)
	var entries []kv.Entry
	for i := range 24 {
		entries = append(entries, put(fmt.Sprintf("%03d", i), 1))
	}
	run := s.put(12, entries...)
	c := Choice{Kind: manifest.CompactBase, Deltas: []manifest.Run{run}}
	mem := s.fs
	for offset := int64(0); offset < int64(run[1].Size); offset++ {
		faulty := faultfs.Wrap(mem, faultfs.FlipBit(offset, uint(offset%8), faultfs.OnName(path.Base(s.name(run[1].Num)))))
		s.fs = faulty
		_, err := Run(t.Context(), s.job(c, Rule{}))
		require.ErrorIs(t, err, kv.ErrCorrupt, "offset %d", offset)
		require.ErrorContains(t, err, path.Base(s.name(run[1].Num)))
	}
	s.requireNoneOpen()
}

// A bit flip in a value on disk ends a merge that rewrites the value; any other merge
// does not read it.
func TestDamagedValueIsNotCopied(t *testing.T) {
	s := newShelf(t)
	s.rule.Threshold, s.rule.FileBytes = 1, 1<<20
	var entries []kv.Entry
	for i := range 12 {
		entries = append(entries, put(fmt.Sprintf("%03d", i), 1))
	}
	first, err := Run(t.Context(), s.job(Choice{Kind: manifest.CompactBase, Base: s.put(12, entries...)}, Rule{}))
	require.NoError(t, err)
	require.Len(t, first.Values, 1)
	require.EqualValues(t, 12, first.Values[0].Values)
	file := first.Values[0].Num
	mem := s.fs
	for offset := int64(0); offset < 200; offset++ {
		require.NoError(t, s.values.Drop(file))
		s.fs = faultfs.Wrap(mem, faultfs.FlipBit(offset, uint(offset%8), faultfs.OnName(path.Base(s.valuesName(file)))))
		c := Choice{Kind: manifest.CompactBase, Base: first.Tables}
		moved, err := Run(t.Context(), s.job(c, Rule{}))
		require.NoError(t, err)
		require.Zero(t, moved.Moved)
		require.Empty(t, moved.Values)
		c.Rewrite = []kv.FileNum{file}
		got, err := Run(t.Context(), s.job(c, Rule{}))
		if err == nil { // only Walk reads the length before a value
			s.fs = mem
			require.Equal(t, entries, s.entries(got.Tables))
			continue
		}
		require.ErrorIs(t, err, kv.ErrCorrupt, "offset %d", offset)
		require.ErrorContains(t, err, path.Base(s.valuesName(file)))
	}
	require.NoError(t, s.values.Close())
}

// A merge fails if an output reads back differently.
func TestRunFindsADamagedOutput(t *testing.T) {
	s := newShelf(t)
	c := Choice{Kind: manifest.CompactBase, Deltas: []manifest.Run{s.put(9, put("a", 1), put("b", 2))}}
	output := path.Base(s.name(s.next))
	s.fs = faultfs.Wrap(s.fs, faultfs.FlipBit(3, 1, faultfs.OnName(output)))
	_, err := Run(t.Context(), s.job(c, Rule{}))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, output)
	names, err := s.fs.List("/")
	require.NoError(t, err)
	require.Len(t, names, 1)
}
