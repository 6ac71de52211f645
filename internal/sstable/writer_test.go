package sstable

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func TestWriterRefusesWhatTheFormatCannotHold(t *testing.T) {
	long := bytes.Repeat([]byte{'k'}, kv.MaxKeyBytes+1)
	for name, test := range map[string]struct {
		entry kv.Entry
		want  error
	}{
		"no kind":               {kv.Entry{Key: []byte("k"), Seq: 1}, kv.ErrInvalidArgument},
		"unknown kind":          {kv.Entry{Key: []byte("k"), Seq: 1, Kind: kv.KindMax}, kv.ErrInvalidArgument},
		"no number":             {put("k", "v", 0), kv.ErrInvalidArgument},
		"number too large":      {put("k", "v", kv.MaxSeqNum+1), kv.ErrInvalidArgument},
		"empty key":             {put("", "v", 1), kv.ErrInvalidArgument},
		"key too long":          {put(string(long), "v", 1), kv.ErrTooLarge},
		"value too long":        {kv.Entry{Key: []byte("k"), Value: make([]byte, kv.MaxValueBytes+1), Seq: 1, Kind: kv.KindPut}, kv.ErrTooLarge},
		"delete with a value":   {kv.Entry{Key: []byte("k"), Value: []byte("v"), Seq: 1, Kind: kv.KindDelete}, kv.ErrInvalidArgument},
		"empty range":           {rangeDel("k", "k", 1), kv.ErrInvalidArgument},
		"range without an end":  {rangeDel("k", "", 1), kv.ErrInvalidArgument},
		"range with a long end": {rangeDel("a", string(long), 1), kv.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWriter(&bytesFile{}, testID, WriterOptions{})
			require.ErrorIs(t, w.Add(&test.entry), test.want)
			good := put("z", "v", 1)
			require.ErrorIs(t, w.Add(&good), test.want, "the error stays")
			_, err := w.Finish()
			require.ErrorIs(t, err, test.want)
		})
	}
}

func TestWriterRefusesWrongOrder(t *testing.T) {
	for name, entries := range map[string][]kv.Entry{
		"key before":          {put("b", "", 1), put("a", "", 2)},
		"older before newer":  {put("a", "", 1), put("a", "", 2)},
		"same key and number": {put("a", "", 1), put("a", "", 1)},
		"delete ties put":     {put("a", "", 1), del("a", 1)},
		"after a tie":         {put("a", "", 1), rangeDel("a", "b", 1), del("a", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWriter(&bytesFile{}, testID, WriterOptions{})
			last := len(entries) - 1
			for i := range entries[:last] {
				require.NoError(t, w.Add(&entries[i]))
			}
			require.ErrorContains(t, w.Add(&entries[last]), "does not follow")
		})
	}
}

func TestWriterRefusesAFileWithoutEntries(t *testing.T) {
	f := &bytesFile{}
	_, err := NewWriter(f, testID, WriterOptions{}).Finish()
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.Empty(t, f.data)
}

func TestWriterIsDoneAfterFinish(t *testing.T) {
	w := NewWriter(&bytesFile{}, testID, WriterOptions{})
	e := put("a", "b", 1)
	require.NoError(t, w.Add(&e))
	_, err := w.Finish()
	require.NoError(t, err)
	require.ErrorIs(t, w.Add(&e), kv.ErrClosed)
	_, err = w.Finish()
	require.ErrorIs(t, err, kv.ErrClosed)
}

func TestWriterCopiesWhatItIsGiven(t *testing.T) {
	f := &bytesFile{}
	w := NewWriter(f, testID, WriterOptions{})
	key, value := []byte("a"), []byte("1")
	for range 20 {
		e := kv.Entry{Key: key, Value: value, Seq: 1, Kind: kv.KindPut}
		require.NoError(t, w.Add(&e))
		key[0]++
		value[0]++
	}
	meta, err := w.Finish()
	require.NoError(t, err)
	require.Equal(t, []byte("a"), meta.Smallest)
	require.Equal(t, []byte("t"), meta.Largest)
	got, err := get(open(t, f, nil), []byte("c"), 1)
	require.NoError(t, err)
	require.Equal(t, "3", got.value)
}

func TestWriterSizeFollowsTheFile(t *testing.T) {
	f := &bytesFile{}
	w := NewWriter(f, testID, WriterOptions{})
	last := w.Size()
	entries := numbered(20_000, 100)
	for i := range entries {
		require.NoError(t, w.Add(&entries[i]))
		require.Greater(t, w.Size(), last)
		last = w.Size()
	}
	require.NotEmpty(t, f.data, "bytes are written before the end")
	meta, err := w.Finish()
	require.NoError(t, err)
	assert.InDelta(t, float64(meta.Size), float64(last), 0.03*float64(meta.Size))
}

// What Finish reported survives a power cut, once the directory is synced.
func TestFinishedFileSurvivesAPowerCut(t *testing.T) {
	fs := vfs.NewMem()
	f, err := fs.Create("13.sst")
	require.NoError(t, err)
	w := NewWriter(f, testID, WriterOptions{})
	entries := numbered(5_000, 100)
	for i := range entries {
		require.NoError(t, w.Add(&entries[i]))
	}
	meta, err := w.Finish()
	require.NoError(t, err)
	require.NoError(t, fs.SyncDir("."))

	after := fs.CrashImage(vfs.DropAll, nil)
	f, err = after.Open("13.sst")
	require.NoError(t, err)
	r, err := Open(f, testID, nil)
	require.NoError(t, err)
	require.Equal(t, meta, r.Meta())
	require.NoError(t, r.Verify(t.Context(), nil))
	require.NoError(t, r.Close())
}

// Finish reports a failure of any operation while the file is written.
func TestWriterReportsEveryFault(t *testing.T) {
	boom := errors.New("boom")
	entries := numbered(10_000, 100)
	write := func(inj faultfs.Injector) (fired bool, err error) {
		fs := faultfs.Wrap(vfs.NewMem(), inj)
		f, err := fs.Create("13.sst")
		require.NoError(t, err)
		w := NewWriter(f, testID, WriterOptions{})
		for i := range entries {
			if err = w.Add(&entries[i]); err != nil {
				break
			}
		}
		_, finishErr := w.Finish()
		if err != nil {
			require.ErrorIs(t, finishErr, boom, "the error stays")
		}
		return fs.Fired(), finishErr
	}
	writesAndSyncs := faultfs.OnKind(faultfs.Write, faultfs.Sync)
	failed := 0
	for i := 0; ; i++ {
		fired, err := write(faultfs.FailAt(i, boom, false, writesAndSyncs))
		if !fired {
			require.NoError(t, err)
			break
		}
		require.ErrorIs(t, err, boom, "fault %d", i)
		failed++
	}
	require.Greater(t, failed, 4, "several writes and a sync")
}
