package partition_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
	"github.com/kvd-db/kvd/internal/scanbatch"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A call of a closed partition returns an error; it neither hangs nor reports a key as
// absent.
func TestAClosedPartitionSaysSo(t *testing.T) {
	s := newScript(t)
	s.run("put a=1\nflush\nput b=2")
	require.NoError(t, s.close())
	key := []byte("a")
	late := func() *kv.Lookup { return &kv.Lookup{Key: key, Hash: keyhash.Sum(key)} }

	r := late()
	require.NoError(t, partitiontest.Lookup(t.Context(), s.p, r))
	require.ErrorIs(t, r.Err, kv.ErrClosed)
	r = late()
	partition.LookupAt([]partition.ReadShare{{Partition: s.p, Reads: []*kv.Lookup{r}}}, kv.MaxSeqNum, 0)
	require.ErrorIs(t, r.Err, kv.ErrClosed)

	var w partition.Walk
	w.Open(s.p, kv.MaxSeqNum, 0, kv.Range{}, false)
	require.False(t, w.Fill(new(scanbatch.Batch)))
	require.ErrorIs(t, w.Err(), kv.ErrClosed)
	require.ErrorIs(t, w.Close(), kv.ErrClosed)

	reads := partition.Reads{At: 1, Keys: []partition.ReadKey{{Key: key, Hash: keyhash.Sum(key)}}}
	require.ErrorIs(t, s.p.Changed(&reads), kv.ErrClosed)
	require.ErrorIs(t, s.p.Refresh(&reads), kv.ErrClosed)
	_, err := commit.Propose(&commit.Proposal{
		Shares: []commit.Share{{Coordinator: s.c, Ops: []kv.Op{{Kind: kv.KindDelete, Key: key}}}}, Settled: func() {},
	})
	require.ErrorIs(t, err, kv.ErrClosed)
}

// Close under running work: each kind of it is held in the middle of a file operation
// while Close runs, and then either ends as if there were no Close or says that the
// partition is closed. It never meets a closed file.
func TestCloseUnderRunningWork(t *testing.T) {
	key := []byte("a")
	one := func() *kv.Lookup { return &kv.Lookup{Key: key, Hash: keyhash.Sum(key)} }
	for name, c := range map[string]struct {
		hold faultfs.Kind
		file string
		work func(p *partition.Partition) error
	}{
		"lookup": {faultfs.Read, "*.sst", func(p *partition.Partition) error {
			r := one()
			return errors.Join(partitiontest.Lookup(context.Background(), p, r), r.Err)
		}},
		"lookup of a value apart": {faultfs.Read, "*.val", func(p *partition.Partition) error {
			r := one()
			return errors.Join(partitiontest.Lookup(context.Background(), p, r), r.Err)
		}},
		"lookup at a version": {faultfs.Read, "*.sst", func(p *partition.Partition) error {
			r := one()
			partition.LookupAt([]partition.ReadShare{{Partition: p, Reads: []*kv.Lookup{r}}}, kv.MaxSeqNum, 0)
			return r.Err
		}},
		"walk":                   {faultfs.Read, "*.sst", walkAll},
		"walk over values apart": {faultfs.Read, "*.val", walkAll},
		"refresh": {faultfs.Read, "*.sst", func(p *partition.Partition) error {
			return p.Refresh(&partition.Reads{At: p.FlushedSeq(), Keys: []partition.ReadKey{{Key: key, Hash: keyhash.Sum(key)}}})
		}},
		"flush":               {faultfs.Write, "*.sst", func(p *partition.Partition) error { return p.FlushAll(context.Background()) }},
		"compaction":          {faultfs.Read, "*.sst", func(p *partition.Partition) error { return p.CompactAll(context.Background()) }},
		"compaction's output": {faultfs.Sync, "*.sst", func(p *partition.Partition) error { return p.CompactAll(context.Background()) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.Wrap(vfs.NewMem(), nil)
				s := &script{t: t, fs: vfs.NewMem(), world: partitiontest.NewWorld()}
				o := s.options()
				o.FS, o.ValueThreshold = disk, 3
				require.NoError(t, partition.Create(o))
				s.openWith(o)
				p := s.p
				s.run("put a=apart b=2\nflush\nput a=apart c=3\nflush\nput d=4") // the last in a memtable

				release := make(chan struct{})
				held := faultfs.At(0, false, faultfs.Fault{Delay: func() { <-release }}, faultfs.OnKind(c.hold), faultfs.OnName(c.file))
				disk.SetInjector(held)
				done, closed := make(chan error, 1), make(chan error, 1)
				go func() { done <- c.work(p) }()
				synctest.Wait()
				require.True(t, held.Fired(), "the work came to its file operation")
				go func() { closed <- s.close() }()
				synctest.Wait()
				close(release)
				if err := <-done; err != nil {
					require.ErrorIs(t, err, kv.ErrClosed)
					require.NotErrorIs(t, err, fs.ErrClosed)
				}
				require.NoError(t, <-closed)
			})
		})
	}
}

func walkAll(p *partition.Partition) error {
	var w partition.Walk
	w.Open(p, kv.MaxSeqNum, 0, kv.Range{}, false)
	for more := true; more; {
		var b scanbatch.Batch
		b.Reset(3, 1<<10, false)
		more = w.Fill(&b)
	}
	return errors.Join(w.Err(), w.Close())
}
