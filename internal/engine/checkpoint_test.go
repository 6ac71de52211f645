package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
)

// fetched returns the content of a file of a source, whose checksum it verifies.
func fetched(t testing.TB, s backup.Source, name string) []byte {
	t.Helper()
	sum, r, err := s.Fetch(t.Context(), name, nil)
	require.NoError(t, err, name)
	b, err := io.ReadAll(r)
	require.NoError(t, err, name)
	h := backup.NewSum()
	h.Write(b)
	require.Equal(t, h.Sum64(), sum, name)
	return b
}

// copied returns a disk with the store of a checkpoint.
func copied(t testing.TB, c *Checkpoint) *vfs.Mem {
	t.Helper()
	to := vfs.NewMem()
	for _, f := range c.Info().Files {
		b := fetched(t, c, f.Name)
		require.Len(t, b, int(f.Size), f.Name)
		name := path.Join("data", f.Name)
		require.NoError(t, to.MkdirAll(path.Dir(name)))
		out, err := to.Create(name)
		require.NoError(t, err)
		_, err = out.WriteAt(b, 0)
		require.NoError(t, errors.Join(err, out.Sync(), out.Close()))
		require.NoError(t, to.SyncDir(path.Dir(name)))
	}
	return to
}

func checkpoint(t testing.TB, e *Engine) *Checkpoint {
	t.Helper()
	c, err := e.Checkpoint(t.Context(), 0)
	require.NoError(t, err)
	return c
}

// A checkpoint of a store that has deleted segments of its log, and has written nothing since, is
// a store.
func TestACheckpointOfAnIdleStoreCanBeOpened(t *testing.T) {
	for n := 350; n < 550; n += 50 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open(t, small(vfs.NewMem()))
				for i := range n {
					put(t, e, key(i), strings.Repeat("v", 300), synced)
				}
				require.NoError(t, e.Flush(t.Context()))
				time.Sleep(time.Minute)
				c := checkpoint(t, e)
				defer c.Release()
				copy := open(t, small(copied(t, c)))
				requireValue(t, copy, key(n-1), strings.Repeat("v", 300))
			})
		})
	}
}

// A checkpoint is taken while writers write: what was acknowledged before is in it, batches
// over partitions are whole, and it is one moment of the log.
func TestACheckpointIsOneVersionOfTheStore(t *testing.T) {
	const writers, accounts, balance = 8, 32, 1000
	o := unhurried(vfs.NewMem())
	o.ValueThreshold = 64
	e := open(t, o)
	amount := func(n uint64) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), strings.Repeat("x", 100)...) // a large value
	}
	account := func(i int) string { return fmt.Sprintf("account-%02d", i) }
	for i := range accounts {
		put(t, e, account(i), string(amount(balance)), synced)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop() // before the wait: a failure must not leave the writers waiting for turns
	var acknowledged [writers]atomic.Uint64
	// Writers take a turn for each write. Without a bound they fill the log, which checkpoints
	// hold, faster than a busy machine copies it.
	turns := make(chan struct{}, 10_000)
	write := func(n int) {
		for range n {
			turns <- struct{}{}
		}
	}
	for w := range writers {
		wg.Go(func() {
			for n := uint64(1); ; n++ {
				select {
				case <-turns:
				case <-ctx.Done():
					return
				}
				if err := transfer(context.Background(), e, account(rand.IntN(accounts)), account(rand.IntN(accounts)), amount); err != nil {
					t.Error(err)
					return
				}
				_, err := e.Put(context.Background(), fmt.Appendf(nil, "writer-%d-%d", w, n%50), amount(n), synced)
				if err != nil {
					t.Error(err)
					return
				}
				acknowledged[w].Store(n)
			}
		})
	}
	wg.Go(func() { // so that the files change all the time
		for e.sequencer.WaitVisible(ctx, e.sequencer.Visible()+10) == nil {
			if err := e.Flush(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	rounds := 5
	if testsize.Reduced() {
		rounds = 2
	}
	for range rounds {
		write(200)
		require.NoError(t, e.sequencer.WaitVisible(t.Context(), e.sequencer.Visible()+20))
		var before [writers]uint64
		for w := range writers {
			before[w] = acknowledged[w].Load()
		}
		c := checkpoint(t, e)
		to := copied(t, c)
		version := c.Info().Version
		c.Release()
		for range 15 {
			write(20)
			c := checkpoint(t, e)
			for _, f := range c.Info().Files {
				if kind, _ := manifest.ParseName(path.Base(f.Name)); kind == manifest.FileManifest {
					v, err := manifest.DecodeManifest(f.Name, fetched(t, c, f.Name))
					require.NoError(t, err)
					require.LessOrEqual(t, v.FlushedSeq, c.Info().Version, "the tables hold nothing that the log does not reach")
				}
			}
			c.Release()
		}

		r, err := Open("data", Options{FS: to, MemtableBytes: 1 << 20, LowDiskBytes: 1})
		require.NoError(t, err)
		require.Greater(t, r.Recovery().NextSeq, e.sequencer.Visible(), "no number is given out by both")
		require.LessOrEqual(t, r.Recovery().LastSeq, version)
		all := contents(t, r)
		sum := uint64(0)
		for i := range accounts {
			sum += binary.LittleEndian.Uint64([]byte(all[account(i)]))
		}
		require.EqualValues(t, accounts*balance, sum, "transfers are whole")
		for w := range writers {
			newest := uint64(0)
			for i := range 50 {
				if v := all[fmt.Sprintf("writer-%d-%d", w, i)]; v != "" {
					newest = max(newest, binary.LittleEndian.Uint64([]byte(v)))
				}
			}
			require.GreaterOrEqual(t, newest, before[w], "acknowledged before the checkpoint")
			require.LessOrEqual(t, newest, acknowledged[w].Load()+1)
		}
		require.NoError(t, r.Close())
	}
	stop()
	wg.Wait()
	c := checkpoint(t, e)
	r, err := Open("data", Options{FS: copied(t, c), MemtableBytes: 1 << 20, LowDiskBytes: 1})
	require.NoError(t, err)
	require.True(t, maps.Equal(contents(t, e), contents(t, r)))
	require.NoError(t, r.Close())
	c.Release()
}

// transfer moves one unit from one account to another.
func transfer(ctx context.Context, e *Engine, from, to string, amount func(uint64) []byte) error {
	if from == to {
		return nil
	}
	for {
		s, err := e.BeginSnapshot(ctx, longLease)
		if err != nil {
			return err
		}
		reads := []*kv.Lookup{{Key: []byte(from)}, {Key: []byte(to)}}
		if _, err = e.LookupAt(ctx, reads, s.Version); err != nil {
			return err
		}
		a, b := binary.LittleEndian.Uint64(reads[0].Value), binary.LittleEndian.Uint64(reads[1].Value)
		tx := &kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Keys: [][]byte{[]byte(from), []byte(to)}}
		tx.Batch = new(kv.WriteBatch)
		tx.Batch.Put([]byte(from), amount(a-1))
		tx.Batch.Put([]byte(to), amount(b+1))
		_, err = e.Commit(ctx, tx, synced)
		e.ReleaseSnapshot(s.ID)
		if !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
}

// The files of a checkpoint stay, with the same bytes, while the store replaces all of its
// own. They go with the checkpoint.
func TestACheckpointDoesNotChangeUntilItIsReleased(t *testing.T) {
	disk := vfs.NewMem()
	o := unhurried(disk)
	o.ValueThreshold = 64
	e := open(t, o)
	fill := func(text string) {
		for i := range 400 {
			put(t, e, key(i), strings.Repeat(text, 100), buffered)
		}
		require.NoError(t, e.CompactAll(t.Context()))
		put(t, e, key(0), "in the log "+text, synced)
	}
	fill("a")
	c := checkpoint(t, e)
	e.ReleaseSnapshot(c.snapshot) // as after ten seconds
	first := map[string][]byte{}
	for _, f := range c.Info().Files {
		first[f.Name] = fetched(t, c, f.Name)
	}
	require.Greater(t, len(first), 4*4)
	fill("b")
	fill("c")
	for name, b := range first {
		require.Equal(t, b, fetched(t, c, name), name)
		sum, content, err := c.Fetch(t.Context(), name, []uint64{1, sumOf(b), 2})
		require.NoError(t, err)
		require.Nil(t, content, "its checksum is known")
		require.Equal(t, sumOf(b), sum)
	}
	r, err := Open("data", Options{FS: copied(t, c), MemtableBytes: 1 << 20, LowDiskBytes: 1})
	require.NoError(t, err)
	requireValue(t, r, key(0), "in the log a")
	requireValue(t, r, key(1), strings.Repeat("a", 100))
	require.NoError(t, r.Close())
	stats := e.Stats()
	require.Equal(t, 1, stats.Checkpoints)
	require.Positive(t, stats.CheckpointAge)

	c.Release()
	c.Release()
	require.Zero(t, e.Stats().Checkpoints)
	for name := range first {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".val") {
			// By a goroutine that looks for compactions, if that still reads the list with the file.
			testwait.Until(t, func() bool {
				_, err := disk.Stat(path.Join("data", name))
				return errors.Is(err, fs.ErrNotExist)
			}, name, "is deleted")
		}
	}
	_, _, err = c.Fetch(t.Context(), "STORE", nil)
	require.ErrorIs(t, err, kv.ErrClosed)
	_, _, err = c.Fetch(t.Context(), "../secret", nil)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
}

func sumOf(b []byte) uint64 {
	h := backup.NewSum()
	h.Write(b)
	return h.Sum64()
}

// A copy of a store is a life of its own. It knows the request ids of recent writes, expires
// what the store would, and refuses versions that were read in the store.
func TestTheCopyOfACheckpointIsALifeOfItsOwn(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	named := synced
	named.RequestID = kv.RequestID{ClientID: 7, Sequence: 1}
	first := put(t, e, "counter", "1", named)
	lease := new(kv.WriteBatch)
	lease.Add(kv.Op{Kind: kv.KindPut, Key: []byte("lease"), Value: []byte("v"), Expiry: e.Now() + 3_600_000})
	_, err := e.Apply(t.Context(), lease, synced)
	require.NoError(t, err)
	s, err := e.BeginSnapshot(t.Context(), 0)
	require.NoError(t, err)
	c := checkpoint(t, e)
	r, err := Open("data", small(copied(t, c)))
	require.NoError(t, err)
	c.Release()
	requireValue(t, r, "lease", "v")
	assert.GreaterOrEqual(t, r.Now(), e.Now()-1000)

	put(t, r, "counter", "2", synced)
	named.RequestID.Retried = true
	require.Equal(t, first, put(t, r, "counter", "1", named), "sent again")
	requireValue(t, r, "counter", "2")
	require.NotEqual(t, e.Epoch(), r.Epoch())
	for _, epoch := range []uint64{s.Epoch, 0} {
		batch := new(kv.WriteBatch)
		batch.Put([]byte("x"), nil)
		_, err = r.Commit(t.Context(), &kv.Transaction{
			ReadVersion: s.Version, Epoch: epoch, Keys: [][]byte{[]byte("counter")},
			Batch: batch,
		}, synced)
		require.ErrorIs(t, err, kv.ErrVersionGone)
	}
	require.NoError(t, r.Close())
}

// Whatever is read of a checkpoint keeps to its rate, also after its reader was held up.
func TestACheckpointIsReadAtItsRate(t *testing.T) { synctest.Test(t, aCheckpointIsReadAtItsRate) }

func aCheckpointIsReadAtItsRate(t *testing.T) {
	const rate, newest = 64 << 10, 3 * (64 << 10)
	e, m := newMeteredStore(t, newest)
	c, err := e.Checkpoint(t.Context(), rate)
	require.NoError(t, err)
	defer c.Release()
	log, _ := m.Total()
	read := func() {
		for i, f := range c.Info().Files {
			if i%3 == 0 {
				time.Sleep(5 * time.Second)
			}
			fetched(t, c, f.Name)
		}
	}
	read()
	bytes, took := m.Total()
	// The store itself reads what it flushes, because of its age, after half a minute.
	for _, within := range []time.Duration{time.Second, 10 * time.Second} {
		require.LessOrEqual(t, m.Most(within), int64(rate*(within.Seconds()+0.04))+largestRead+log+newest, "%d bytes in %v", bytes, took)
	}
	tables, segments := int64(0), int64(0)
	for _, f := range c.Info().Files {
		switch path.Ext(f.Name) {
		case ".sst", ".val":
			tables += f.Size
		case ".wal":
			segments += f.Size
		}
	}
	require.Greater(t, tables, int64(20*rate))
	require.InEpsilon(t, 2*tables+4*segments, bytes, 0.1, "tables %d, log %d", tables, segments)
	m.Reset()
	read()
	again, _ := m.Total()
	require.InEpsilon(t, tables+3*segments, again, 0.1, "tables are verified once")
}

// The verification of a file ends with the checkpoint, however low the rate is.
func TestAReleasedCheckpointIsNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newScrubStore(t, scrubOptions(vfs.NewMem()))
		c, err := e.Checkpoint(t.Context(), 1)
		require.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(time.Second, func() { e.checkpoints.end(errCheckpointEnded) })
		for _, f := range c.Info().Files {
			if path.Ext(f.Name) == ".sst" {
				_, _, err = c.Fetch(t.Context(), f.Name, nil)
				require.Equal(t, errCheckpointEnded, err)
				require.Equal(t, time.Second, time.Since(begin))
			}
		}
	})
}

func TestCheckpointsAreBounded(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "k", "v", synced)
	var all []*Checkpoint
	for range maxCheckpoints {
		all = append(all, checkpoint(t, e))
	}
	_, err := e.Checkpoint(t.Context(), 0)
	require.ErrorIs(t, err, kv.ErrOverloaded)
	all[0].Release()
	all[0] = checkpoint(t, e)

	e.checkpoints.end(errCheckpointEnded) // as the maintenance loop does
	for _, c := range all {
		_, _, err := c.Fetch(t.Context(), "STORE", nil)
		require.ErrorIs(t, err, kv.ErrVersionGone)
		require.ErrorContains(t, err, "free space")
		c.Release()
	}
	c := checkpoint(t, e)
	require.NoError(t, e.Close())
	_, _, err = c.Fetch(t.Context(), "STORE", nil)
	require.ErrorIs(t, err, kv.ErrClosed)
	c.Release()
	_, err = e.Checkpoint(t.Context(), 0)
	require.ErrorIs(t, err, kv.ErrClosed)
}

// A damaged file of the store is reported, and not copied.
func TestACheckpointCopiesNoDamage(t *testing.T) {
	disk := vfs.NewMem()
	o := unhurried(disk)
	o.ValueThreshold = 64
	e := open(t, o)
	for i := range 500 {
		put(t, e, key(i), strings.Repeat("v", 50+i%2*50), buffered)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	put(t, e, key(0), "in the log", synced)
	c := checkpoint(t, e)
	defer c.Release()
	damaged := map[string]bool{}
	for _, f := range slices.Backward(c.Info().Files) { // the last segment of the log comes last
		ext := path.Ext(f.Name)
		if ext != ".sst" && ext != ".val" && ext != ".wal" || damaged[ext] {
			continue
		}
		damaged[ext] = true
		file, err := disk.OpenReadWrite(path.Join("data", f.Name))
		require.NoError(t, err)
		var b [1]byte
		at := f.Size - 20 // in the footer, or in the last record of the log
		_, err = file.ReadAt(b[:], at)
		require.NoError(t, err)
		b[0] ^= 1
		_, err = file.WriteAt(b[:], at)
		require.NoError(t, err)
		_, _, err = c.Fetch(t.Context(), f.Name, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt, f.Name)
		b[0] ^= 1
		_, err = file.WriteAt(b[:], at)
		require.NoError(t, errors.Join(err, file.Close()))
		fetched(t, c, f.Name)
	}
	require.Len(t, damaged, 3)
}

// A long log that a checkpoint holds does not make the store flush its memtables early.
func TestACheckpointCausesNoFlushes(t *testing.T) {
	o := small(vfs.NewMem())
	o.logBytes = 256 << 10
	o.MemtableBytes = 8 << 20 // so that nothing but a long log is a reason for a flush
	e := open(t, o)
	c := checkpoint(t, e)
	defer c.Release()
	for i := 0; e.log.Stats().LiveBytes <= 2*o.logBytes; i++ {
		put(t, e, key(i), strings.Repeat("v", 500), buffered)
	}
	flushes := func() (sum uint64) {
		for _, p := range e.Stats().Partitions {
			sum += p.Flushes
		}
		return sum
	}
	require.NoError(t, e.Flush(t.Context()))
	before := flushes()
	for i := range 30 {
		put(t, e, key(i), "small", buffered)
		for range 3 { // the maintenance loop has trimmed the log since
			e.maintenance.wake <- struct{}{}
		}
	}
	require.Less(t, flushes()-before, uint64(5))
	require.Greater(t, e.log.Stats().LiveBytes, 2*o.logBytes, "the log is held")
}

// While a checkpoint is new, its version can be read, and holds what its files hold.
func TestACheckpointCanBeReadAtItsVersion(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "a", "1", synced)
	c := checkpoint(t, e)
	put(t, e, "a", "2", synced)
	require.NoError(t, e.CompactAll(t.Context()))
	read := &kv.Lookup{Key: []byte("a")}
	_, err := e.LookupAt(t.Context(), []*kv.Lookup{read}, c.Info().Version)
	require.NoError(t, err)
	require.Equal(t, "1", string(read.Value))
	require.Equal(t, 1, e.Stats().Snapshots)
	c.Release()
	require.Zero(t, e.Stats().Snapshots)
	_, err = e.LookupAt(t.Context(), []*kv.Lookup{read}, c.Info().Version)
	require.ErrorIs(t, err, kv.ErrVersionGone)

	e.snapshots.limit = 0 // all are taken: a backup is possible all the same
	c = checkpoint(t, e)
	require.GreaterOrEqual(t, c.Info().Version, e.acknowledged())
	c.Release()
}
