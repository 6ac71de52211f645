package inspect

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt; read the difference before it is committed")

// sampleFiles returns a file system with one file of each kind, the same in every run,
// and their names.
func sampleFiles(t *testing.T) (*vfs.Mem, []string) {
	t.Helper()
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data/p-0003"))
	write := func(name string, content []byte) { require.NoError(t, vfs.WriteAtomic(fsys, name, content)) }
	d := descriptor.Descriptor{StoreID: 0x0123456789abcdef, Partitions: 4}
	write("data/STORE", d.Encode())
	c := descriptor.Clock{
		StoreID: d.StoreID, Bound: 1_790_000_000_123, Boot: [16]byte{0xb0, 1, 2}, Since: 3_600_000_000_001,
		Time: 1_789_999_990_123_456, Wall: 1_789_999_990_123_400,
	}
	write("data/CLOCK", c.Encode())
	n := descriptor.Node{StoreID: d.StoreID, Cluster: 0xfedc_ba98_7654_3210, Node: 3, Members: map[uint64]string{1: "10.0.0.1:7072", 3: "10.0.0.3:7072"}}
	write("data/NODE", n.Encode())
	for _, name := range []string{"CURRENT", "MANIFEST-000040"} {
		content, err := os.ReadFile("../manifest/testdata/v1/" + name)
		require.NoError(t, err)
		write("data/p-0003/"+name, content)
	}
	sampleTable(t, fsys, "data/p-0003/000013.sst")
	sampleLog(t, fsys, "data/wal")
	return fsys, []string{"STORE", "CLOCK", "NODE", "p-0003/CURRENT", "p-0003/MANIFEST-000040", "p-0003/000013.sst", "wal/000001.wal"}
}

func sampleTable(t *testing.T, fsys vfs.FS, name string) {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	w := sstable.NewWriter(f, kv.FileID{Partition: 3, Num: 13}, sstable.WriterOptions{})
	for _, e := range []kv.Entry{
		{Key: []byte("a\x00"), Value: []byte("new"), Seq: 9, Kind: kv.KindPut},
		{Key: []byte("a\x00"), Value: nil, Seq: 7, Kind: kv.KindDelete},
		{Key: []byte("a\x00"), Value: []byte("old"), Seq: 2, Kind: kv.KindPut},
		{Key: []byte(`b"\`), Value: []byte(strings.Repeat("long ", 20)), Seq: 3, Kind: kv.KindPut, Expiry: 1000},
		{Key: []byte("ä\xff"), Value: []byte{}, Seq: 4, Kind: kv.KindPut},
	} {
		require.NoError(t, w.Add(&e))
	}
	_, err = w.Finish()
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func sampleLog(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	log, _, err := wal.Open(wal.Options{FS: fsys, Dir: dir, StoreID: 0x0123456789abcdef, Fresh: true},
		func(wal.Record) error { return nil })
	require.NoError(t, err)
	var encoder record.Encoder
	encoder.Section(0, 2)
	encoder.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: []byte("a\x00"), Value: []byte("new")})
	encoder.Op(1, kv.RequestID{}, &kv.Op{Kind: kv.KindDelete, Key: []byte("b")})
	encoder.Section(3, 1)
	encoder.Op(1, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: []byte("c"), Value: []byte(strings.Repeat("x", 100))})
	_, pos, err := log.Append(encoder.Bytes(), 2, kv.DurabilitySync, noWaker{}, nil)
	require.NoError(t, err)
	require.NoError(t, log.WaitSynced(context.Background(), pos))
	require.NoError(t, log.Close())
}

type noWaker struct{}

func (noWaker) Wake()     {}
func (noWaker) RunReady() {}

func TestDumpPrintsEveryKindOfFile(t *testing.T) {
	fsys, names := sampleFiles(t)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, Dump(fsys, "data/"+name, &out, DumpOptions{}))
			golden := filepath.Join("testdata", filepath.Base(name)+".txt")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), out.String())
		})
	}
}

func TestDumpSaysWhatIsPadding(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data/p-0003"))
	f, err := fsys.Create("data/p-0003/000013.sst")
	require.NoError(t, err)
	w := sstable.NewWriter(f, kv.FileID{Partition: 3, Num: 13}, sstable.WriterOptions{})
	for i := range 60 { // of 113 bytes, 36 to a page
		e := kv.Entry{Key: fmt.Appendf(nil, "key%05d", i), Value: bytes.Repeat([]byte("v"), 99), Seq: 1, Kind: kv.KindPut}
		require.NoError(t, w.Add(&e))
	}
	_, err = w.Finish()
	require.NoError(t, err)
	require.NoError(t, f.Close())
	var out bytes.Buffer
	require.NoError(t, Dump(fsys, "data/p-0003/000013.sst", &out, DumpOptions{}))
	assert.Contains(t, out.String(), " bytes of padding, which keep blocks within pages\n")
}

// The log of a node of a cluster is printed by the function that knows it, by the means of a dump.
func TestDumpLeavesTheLogOfANodeToItsPackage(t *testing.T) {
	fsys, _ := sampleFiles(t)
	var out bytes.Buffer
	require.ErrorIs(t, Dump(fsys, "data/wal/000001.raft", &out, DumpOptions{}), kv.ErrInvalidArgument)

	var encoder record.Encoder
	encoder.Section(2, 1)
	encoder.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: []byte("v")})
	err := Dump(fsys, "data/wal/000001.raft", &out, DumpOptions{Log: func(_ vfs.FS, name string, p Printer) error {
		p.Printf("%s\n", name)
		require.NoError(t, p.Record(64, 9, encoder.Bytes()))
		return p.Record(64, 10, []byte("no record"))
	}})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "record 10")
	require.Equal(t, "data/wal/000001.raft\n    partition 2: 9 put \"k\" = \"v\"\n", out.String())
}

func TestDumpPrintsValuesWholeIfAsked(t *testing.T) {
	fsys, _ := sampleFiles(t)
	var out bytes.Buffer
	require.NoError(t, Dump(fsys, "data/p-0003/000013.sst", &out, DumpOptions{Values: true}))
	assert.Contains(t, out.String(), `"`+strings.Repeat("long ", 20)+`"`)
}

func TestDumpShowsWhatIsWholeAndThenTheDamage(t *testing.T) {
	fsys, names := sampleFiles(t)
	for _, name := range names {
		damaged := fsys.KillImage()
		flipByte(t, damaged, "data/"+name, 10)
		var out bytes.Buffer
		err := Dump(damaged, "data/"+name, &out, DumpOptions{})
		assert.True(t, isDamage(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, name)
	}
	// If the second record of the log is damaged, the frame before it is still printed.
	damaged := fsys.KillImage()
	flipByte(t, damaged, "data/wal/000001.wal", 64+64+64+5)
	var out bytes.Buffer
	require.NoError(t, Dump(damaged, "data/wal/000001.wal", &out, DumpOptions{}), "whether it is damage, only the whole log tells")
	assert.Contains(t, out.String(), "start frame")
	assert.Contains(t, out.String(), "that are no frame")
}

// Whole frames after a damaged one are printed too, and are not counted as bytes that are no frame.
func TestDumpGoesOnAfterADamagedFrame(t *testing.T) {
	fsys := newStore(t)
	var whole bytes.Buffer
	require.NoError(t, Dump(fsys, "data/wal/000001.wal", &whole, DumpOptions{}))
	lines := strings.SplitAfter(whole.String(), "\n")
	var frames []int // their lines
	for i, line := range lines {
		if strings.Contains(line, " frame, ") {
			frames = append(frames, i)
		}
	}
	require.Greater(t, len(frames), 5)
	want, kept := slices.Clone(lines[frames[0]:frames[2]]), lines[frames[3]:]
	var at, size int64
	_, err := fmt.Sscanf(lines[frames[2]], "%d: data frame, %d bytes", &at, &size)
	require.NoError(t, err)
	want = append(append(want, fmt.Sprintf("%d: %d bytes that are no frame; kvd check tells whether they are damage\n", at, size)), kept...)

	flipByte(t, fsys, "data/wal/000001.wal", at+70)
	var out bytes.Buffer
	require.NoError(t, Dump(fsys, "data/wal/000001.wal", &out, DumpOptions{}))
	text := out.String()
	require.Contains(t, text, lines[frames[0]])
	assert.Equal(t, strings.Join(want, ""), text[strings.Index(text, lines[frames[0]]):])
}

func TestDumpRefusesWhatIsNoFileOfAStore(t *testing.T) {
	fsys, _ := sampleFiles(t)
	require.NoError(t, vfs.WriteAtomic(fsys, "data/readme.txt", []byte("hello")))
	sampleTable(t, fsys, "data/000013.sst")
	for name, want := range map[string]error{
		"data/readme.txt": kv.ErrInvalidArgument, "data/000013.sst": kv.ErrInvalidArgument,
		"data/p-0003/CURRENT.tmp": kv.ErrInvalidArgument, "data/p-0001/CURRENT": kv.ErrCorrupt, "data/wal/000009.wal": os.ErrNotExist,
	} {
		require.ErrorIs(t, Dump(fsys, name, &bytes.Buffer{}, DumpOptions{}), want, name)
	}
}

// flipByte changes a byte at offset, counted from the end if negative.
func flipByte(t *testing.T, fsys vfs.FS, name string, offset int64) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	offset = (offset + size) % size
	var b [1]byte
	_, err = f.ReadAt(b[:], offset)
	require.NoError(t, err, fmt.Sprint(name, offset))
	b[0] ^= 0x20
	_, err = f.WriteAt(b[:], offset)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
