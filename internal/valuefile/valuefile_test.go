package valuefile

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

var update = flag.Bool("update", false, "write the golden file of the current format version anew")

func TestValuesComeBack(t *testing.T) {
	s := newShelf(t)
	pointers, meta := s.write(13, testValues()...)
	require.EqualValues(t, len(s.content(13)), meta.Size)
	require.EqualValues(t, len(pointers), meta.Values)
	r, err := s.open(13)
	require.NoError(t, err)
	require.Equal(t, meta, r.Meta())
	var buf []byte
	for p, want := range s.want {
		buf, err = r.Read(p, buf)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, buf))
	}
	at := 0
	require.NoError(t, r.Walk(func(p kv.ValuePointer, value []byte) error {
		require.Equal(t, pointers[at], p)
		require.True(t, bytes.Equal(s.want[p], value))
		at++
		return nil
	}))
	require.Equal(t, len(pointers), at)
	var read int64
	require.NoError(t, r.Verify(t.Context(), func(n int64) { read += n }))
	require.EqualValues(t, meta.Size, read)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "idempotent")
}

// The golden file of each released version stays readable, and the writer still produces
// the current one byte for byte.
func TestGoldenFile(t *testing.T) {
	s := newShelf(t)
	values := [][]byte{[]byte("one"), bytes.Repeat([]byte("two"), 100), {0}, bytes.Repeat([]byte{0xff}, 70)}
	pointers, _ := s.write(13, values...)
	path := filepath.Join("testdata", "v1", "000013.val")
	if *update {
		require.NoError(t, os.WriteFile(path, s.content(13), 0o644))
	}
	golden, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(golden, s.content(13)), "the writer no longer makes format version %d", formatVersion)
	s.replace(13, golden)
	r, err := s.open(13)
	require.NoError(t, err)
	for i, p := range pointers {
		got, err := r.Read(p, nil)
		require.NoError(t, err)
		require.Equal(t, values[i], got)
	}
	require.NoError(t, r.Verify(t.Context(), nil))
	require.NoError(t, r.Close())
}

// The layout of doc.go, byte by byte, for the smallest file.
func TestSmallestFileIsAsDocumented(t *testing.T) {
	s := newShelf(t)
	pointers, _ := s.write(13, []byte("v"))
	require.Equal(t, kv.ValuePointer{File: 13, Offset: 0, Length: 1}, pointers[0])
	data := string(s.content(13))
	require.Equal(t, "\x01\x00\x00\x00v", data[:5])
	footer := data[9:]
	u64 := func(n byte) string { return string([]byte{n, 0, 0, 0, 0, 0, 0, 0}) }
	require.Equal(t, "\x03\x00\x00\x00"+u64(13)+u64(1)+u64(1)+u64(9)+string([]byte{footerBytes, 0, 0, 0})+"\x01\x00\x00\x00", footer[:footerBytes-12])
	require.Equal(t, "kvd-val\n", footer[footerBytes-8:])
}

// TestEveryFlipIsNoticed flips a bit in every byte: a value is then right or a corruption
// error, and Verify always finds it.
func TestEveryFlipIsNoticed(t *testing.T) {
	s := newShelf(t)
	s.write(13, []byte("one"), bytes.Repeat([]byte("two"), 20), []byte{0})
	whole := s.content(13)
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1 << (i % 8)
		s.requireDamage(13, flipped)
	}
	for n := range whole {
		s.requireDamage(13, whole[:n:n])
	}
	s.requireDamage(13, append(bytes.Clone(whole), 0))
}

func (s *shelf) requireDamage(num kv.FileNum, data []byte) {
	s.replace(num, data)
	r, err := s.open(num)
	if err != nil {
		s.requireNamed(err, num)
		return
	}
	for p, want := range s.want {
		if got, err := r.Read(p, nil); err != nil {
			s.requireNamed(err, num)
		} else {
			require.Equal(s.t, want, got)
		}
	}
	s.requireNamed(r.Verify(context.Background(), nil), num)
	require.NoError(s.t, r.Close())
}

func (s *shelf) requireNamed(err error, num kv.FileNum) {
	if errors.Is(err, kv.ErrUnsupportedVersion) {
		return
	}
	damage, ok := errors.AsType[*kv.CorruptionError](err)
	require.True(s.t, ok, "%v", err)
	require.Equal(s.t, fileName(num), damage.File)
}

// A record is bound to its offset and a file to its number.
func TestWhatIsElsewhereIsDamage(t *testing.T) {
	s := newShelf(t)
	a, _ := s.write(13, []byte("aaaa"), []byte("bbbb"))
	b, _ := s.write(14, []byte("cccc"), []byte("dddd"))
	first, second := s.content(13), s.content(14)
	swapped := bytes.Clone(first)
	copy(swapped[:b[1].Offset], second[:b[1].Offset]) // a record of another file at the same place
	s.replace(13, swapped)
	r, err := s.open(13)
	require.NoError(t, err)
	_, err = r.Read(a[0], nil)
	s.requireNamed(err, 13)
	got, err := r.Read(a[1], nil)
	require.NoError(t, err)
	require.Equal(t, "bbbb", string(got))
	require.NoError(t, r.Close())

	moved := bytes.Clone(first)
	copy(moved[a[1].Offset:], first[:a[1].Offset]) // a record of the same file at another place
	s.replace(13, moved)
	r, err = s.open(13)
	require.NoError(t, err)
	_, err = r.Read(a[1], nil)
	s.requireNamed(err, 13)
	require.NoError(t, r.Close())

	s.replace(13, second)
	_, err = s.open(13)
	s.requireNamed(err, 13)
}

// A pointer that no writer made never returns other bytes.
func TestWrongPointersAreDamage(t *testing.T) {
	s := newShelf(t)
	p, _ := s.write(13, bytes.Repeat([]byte("a"), 100), bytes.Repeat([]byte("a"), 100))
	r, err := s.open(13)
	require.NoError(t, err)
	for name, wrong := range map[string]kv.ValuePointer{
		"shorter": {File: 13, Offset: p[0].Offset, Length: 99}, "longer": {File: 13, Offset: p[0].Offset, Length: 101},
		"between": {File: 13, Offset: 1, Length: 50}, "after the end": {File: 13, Offset: 1 << 40, Length: 5},
		"across the end": {File: 13, Offset: p[1].Offset, Length: 200},
	} {
		_, err := r.Read(wrong, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
	}
	_, err = r.Read(kv.ValuePointer{File: 14, Offset: 0, Length: 100}, nil)
	require.ErrorIs(t, err, kv.ErrInvalidArgument, "a bug of the caller")
	require.NoError(t, r.Close())
}

func TestNewerFormatIsRefusedAsSuch(t *testing.T) {
	s := newShelf(t)
	s.write(13, []byte("one"))
	data := s.content(13)
	data = appendEnvelope(data[:len(data)-envelopeBytes], len(data)-footerBytes, formatVersion+1)
	s.replace(13, data)
	_, err := s.open(13)
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	require.NotErrorIs(t, err, kv.ErrCorrupt)
}

// TestWriterFailsForGood fails each operation of a writer in turn.
func TestWriterFailsForGood(t *testing.T) {
	for at := 0; ; at++ {
		s := newShelf(t)
		inj := faultfs.FailAt(at, syscall.EIO, false, faultfs.OnKind(faultfs.Write, faultfs.Sync))
		f, err := faultfs.Wrap(s.fs, inj).Create(fileName(13))
		require.NoError(t, err)
		w := NewWriter(f, testID(13))
		failed := error(nil)
		for _, v := range testValues() {
			_, err := w.Add(v)
			if failed != nil {
				require.ErrorIs(t, err, syscall.EIO, "it failed before")
			}
			failed = err
		}
		_, err = w.Finish()
		require.NoError(t, f.Close())
		if !inj.Fired() {
			require.NoError(t, err)
			require.Greater(t, at, 3)
			_, err = w.Finish()
			require.ErrorIs(t, err, kv.ErrClosed)
			_, err = w.Add([]byte("late"))
			require.ErrorIs(t, err, kv.ErrClosed)
			return
		}
		require.ErrorIs(t, err, syscall.EIO)
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, v := range [][]byte{nil, {}, make([]byte, kv.MaxValueBytes+1)} {
		s := newShelf(t)
		f, err := s.fs.Create(fileName(13))
		require.NoError(t, err)
		w := NewWriter(f, testID(13))
		_, err = w.Add(v)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		_, err = w.Finish()
		require.ErrorIs(t, err, kv.ErrInvalidArgument, "a file without a value")
		require.NoError(t, f.Close())
	}
}

// newSet makes a set over three files.
func (s *shelf) newSet() (*Set, []kv.ValuePointer) {
	var all []kv.ValuePointer
	for num := range kv.FileNum(3) {
		pointers, _ := s.write(13+num, testValues()...)
		all = append(all, pointers...)
	}
	return NewSet(s.open), all
}

func TestBatchesGiveWhatReadGives(t *testing.T) {
	s := newShelf(t)
	set, all := s.newSet()
	rng := rand.New(rand.NewPCG(2, 2))
	fetches := make([]Fetch, 0, len(all)) // its values are overwritten
	for range 20 {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		n := 1 + rng.IntN(len(all))
		fetches = fetches[:n]
		for i := range fetches {
			fetches[i].Pointer, fetches[i].Err = all[i], nil
		}
		set.slow.Store(rng.IntN(2) == 0)
		set.ReadBatch(fetches)
		for _, f := range fetches {
			require.NoError(t, f.Err)
			require.True(t, bytes.Equal(s.want[f.Pointer], f.Value))
		}
	}
	require.NoError(t, set.Close())
}

func TestBatchJoinsNeighbours(t *testing.T) {
	s := newShelf(t)
	values := make([][]byte, 40)
	for i := range values {
		values[i] = bytes.Repeat([]byte{byte(i)}, 1000)
	}
	pointers, _ := s.write(13, values...)
	faulty := faultfs.Wrap(s.fs, nil)
	s.fs = faulty
	set := NewSet(s.open)
	fetch := func(from, to, step int) int {
		var fetches []Fetch
		for i := from; i < to; i += step {
			fetches = append(fetches, Fetch{Pointer: pointers[i]})
		}
		before := faulty.Count()
		set.ReadBatch(fetches)
		for _, f := range fetches {
			require.NoError(t, f.Err)
		}
		return faulty.Count() - before
	}
	fetch(0, 1, 1)
	require.Equal(t, 1, fetch(0, 40, 1))
	require.Equal(t, 1, fetch(0, 40, 4), "gaps of three values are read over")
	require.Equal(t, 4, fetch(0, 40, 10), "gaps of nine are not")
	require.NoError(t, set.Close())
}

// A damaged value fails its own fetch and no other.
func TestDamageInABatchIsThatOfOneValue(t *testing.T) {
	s := newShelf(t)
	pointers, _ := s.write(13, []byte("one"), []byte("two"), []byte("three"))
	data := s.content(13)
	data[pointers[1].Offset+lengthBytes] ^= 1
	s.replace(13, data)
	set := NewSet(s.open)
	fetches := []Fetch{{Pointer: pointers[2]}, {Pointer: pointers[1]}, {Pointer: pointers[0]}, {Pointer: kv.ValuePointer{File: 99, Length: 1}}}
	set.ReadBatch(fetches)
	require.Equal(t, "three", string(fetches[0].Value))
	s.requireNamed(fetches[1].Err, 13)
	require.Nil(t, fetches[1].Value)
	require.Equal(t, "one", string(fetches[2].Value))
	require.ErrorIs(t, fetches[3].Err, fs.ErrNotExist)
	require.NoError(t, set.Close())
}

// An error of one joined read is not taken for an error of all its values.
func TestFailedJoinedReadIsTriedOneByOne(t *testing.T) {
	s := newShelf(t)
	pointers, _ := s.write(13, []byte("one"), []byte("two"))
	mem := s.fs
	inj := faultfs.FailAt(1, syscall.EIO, false, faultfs.OnKind(faultfs.Read)) // the first read is of the footer
	s.fs = faultfs.Wrap(mem, inj)
	set := NewSet(s.open)
	fetches := []Fetch{{Pointer: pointers[0]}, {Pointer: pointers[1]}}
	set.ReadBatch(fetches)
	require.True(t, inj.Fired())
	for _, f := range fetches {
		require.NoError(t, f.Err)
		require.Equal(t, s.want[f.Pointer], f.Value)
	}
	require.NoError(t, set.Close())
}

func TestSetBoundsOpenFiles(t *testing.T) {
	s := newShelf(t)
	const files = maxOpen + 20
	var mu sync.Mutex
	opened := 0
	set := NewSet(func(num kv.FileNum) (*Reader, error) {
		mu.Lock()
		opened++
		mu.Unlock()
		return s.open(num)
	})
	var pointers []kv.ValuePointer
	for num := range kv.FileNum(files) {
		p, _ := s.write(1+num, []byte{1, byte(num)})
		pointers = append(pointers, p...)
	}
	read := func(p kv.ValuePointer) {
		got, err := set.Read(p, nil)
		require.NoError(t, err)
		require.Equal(t, s.want[p], got)
	}
	for _, p := range pointers {
		read(p)
		read(pointers[0])
	}
	require.Equal(t, files, opened, "the one in use stays open")
	require.Len(t, set.mu.files, maxOpen)
	read(pointers[1])
	require.Equal(t, files+1, opened)
	require.NoError(t, set.Close())
	_, err := set.Read(pointers[0], nil)
	require.ErrorIs(t, err, kv.ErrClosed)
}

func TestFailedOpenIsTriedAgain(t *testing.T) {
	s := newShelf(t)
	pointers, _ := s.write(13, []byte("one"))
	s.fs = faultfs.Wrap(s.fs, faultfs.FailAt(0, syscall.EMFILE, false, faultfs.OnKind(faultfs.Open)))
	set := NewSet(s.open)
	_, err := set.Read(pointers[0], nil)
	require.ErrorIs(t, err, syscall.EMFILE)
	got, err := set.Read(pointers[0], nil)
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
	require.NoError(t, set.Close())
}

// Files are dropped and others opened while all are being read.
func TestConcurrentUseOfASet(t *testing.T) {
	s := newShelf(t)
	set, all := s.newSet()
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(g)))
			for range 50 {
				p := all[rng.IntN(len(all))]
				if got, err := set.Read(p, nil); err != nil || !bytes.Equal(s.want[p], got) {
					t.Errorf("read of %v: %v", p, err)
				}
				if rng.IntN(10) == 0 {
					if err := set.Drop(p.File); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, set.Close())
}

func TestSweepGivesValuesInAnyOrder(t *testing.T) {
	s := newShelf(t)
	set, all := s.newSet()
	rng := rand.New(rand.NewPCG(4, 4))
	sweep := set.NewSweep()
	check := func(p kv.ValuePointer) {
		got, err := sweep.Read(p)
		require.NoError(t, err)
		require.True(t, bytes.Equal(s.want[p], got))
	}
	for _, p := range all {
		check(p)
	}
	for range 50 {
		check(all[rng.IntN(len(all))])
	}
	_, err := sweep.Read(kv.ValuePointer{File: 99, Length: 1})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = sweep.Read(kv.ValuePointer{File: 13, Offset: 1, Length: 1})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.NoError(t, sweep.Close())
	require.NoError(t, set.Close())
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	s := newShelf(t)
	s.write(13, []byte("one"))
	r, err := s.open(13)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Verify(ctx, nil), context.Canceled)
	require.NoError(t, r.Close())
}

// Every value whose record verifies can be read from a file that lost its footer or its end.
func TestValuesOfADamagedFile(t *testing.T) {
	s := newShelf(t)
	var values [][]byte
	for i := range 20 {
		values = append(values, bytes.Repeat([]byte{byte(i)}, 50+i))
	}
	pointers, meta := s.write(7, values...)
	f, err := s.fs.OpenReadWrite(fileName(7))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(int64(pointers[15].Offset)+10))
	_, err = f.WriteAt([]byte{99}, int64(pointers[3].Offset)+20)
	require.NoError(t, errors.Join(err, f.Close()))
	require.Greater(t, meta.Size, pointers[15].Offset)

	f, err = s.fs.Open(fileName(7))
	require.NoError(t, err)
	r, err := OpenDamaged(f, testID(7), &meta)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for i, p := range pointers {
		value, err := r.Read(p, nil)
		if i == 3 || i >= 15 {
			require.ErrorIs(t, err, kv.ErrCorrupt)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, values[i], value)
	}
}

// A file of another store may have other values in the same places. Its footer tells.
func TestAnotherFileIsNotSalvaged(t *testing.T) {
	s := newShelf(t)
	_, meta := s.write(7, []byte("value"), []byte("another"))
	other := meta
	other.Values++
	for _, c := range []struct {
		id   kv.FileID
		want *kv.ValueFileMeta
		ok   bool
	}{{testID(7), &meta, true}, {testID(7), nil, true}, {testID(7), &other, false}, {testID(8), nil, false}} {
		f, err := s.fs.Open(fileName(7))
		require.NoError(t, err)
		r, err := OpenDamaged(f, c.id, c.want)
		if c.ok {
			require.NoError(t, err)
			require.NoError(t, r.Close())
			continue
		}
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.NoError(t, f.Close())
	}
}
