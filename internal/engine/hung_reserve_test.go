package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// hungLife is a store on a disk whose reservations of space can hang, and what its client
// knows of it.
type hungLife struct {
	t       *testing.T
	mem     *vfs.Mem
	disk    *faultfs.FS
	watched *vfs.Watched
	e       *Engine
	values  map[string]string // acknowledged
	n       int
}

func newHungLife(t *testing.T) *hungLife {
	l := &hungLife{t: t, mem: vfs.NewMem(), values: map[string]string{}}
	l.disk = faultfs.Wrap(l.mem, nil)
	l.watched = vfs.Watch(l.disk)
	o := small(l.watched)
	o.MemtableBytes, o.LowDiskBytes = 64<<20, 64<<10
	var err error
	l.e, err = Open("data", o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.e.Close()) })
	l.write()
	return l
}

// writes are the ways into the log.
func (l *hungLife) writes() map[string]func(ctx context.Context, key, value string) error {
	return map[string]func(ctx context.Context, key, value string) error{
		"put": func(ctx context.Context, key, value string) error {
			_, err := l.e.Put(ctx, []byte(key), []byte(value), buffered)
			return err
		},
		"pipelined": func(ctx context.Context, key, value string) error {
			w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}, Durability: kv.DurabilitySync}
			return errors.Join(l.e.Write(ctx, []*kv.Write{w}), w.Err)
		},
		"batch": func(ctx context.Context, key, value string) error {
			var b kv.WriteBatch
			b.Put([]byte(key), []byte(value))
			for i := range l.e.partitions {
				b.Put([]byte(keysIn(l.e, i, 1)[0]), []byte("beside"))
			}
			_, err := l.e.Apply(ctx, &b, synced)
			return err
		},
		"leased": func(ctx context.Context, key, value string) error {
			var b kv.WriteBatch
			b.Add(kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value), Expiry: l.e.Now() + uint64(time.Hour.Milliseconds())})
			if _, err := l.e.Apply(ctx, &b, buffered); err != nil {
				return err
			}
			s, err := l.e.BeginSnapshot(ctx, time.Minute) // which writes to the log: time has passed
			if err == nil {
				l.e.ReleaseSnapshot(s.ID)
			}
			return err
		},
	}
}

// write writes in each way, and returns how many callers gave up.
func (l *hungLife) write() (late int) {
	value := strings.Repeat("v", 500)
	for name, write := range l.writes() {
		key := fmt.Sprintf("%s-%d", name, l.n)
		l.n++
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		begin := time.Now()
		err := write(ctx, key, value)
		cancel()
		// By the fake clock, which stands still while anything works.
		require.LessOrEqual(l.t, time.Since(begin), time.Second, "%s outlived its context", name)
		if errors.Is(err, context.DeadlineExceeded) {
			late++
			delete(l.values, key)
			continue
		}
		require.NoError(l.t, err, name)
		l.values[key] = value
	}
	return late
}

func (l *hungLife) read() {
	for key, value := range l.values {
		requireValue(l.t, l.e, key, value)
	}
}

// keeps counts how often the maintenance loop checks the disk.
func (l *hungLife) keeps(inj faultfs.Injector) (faultfs.Injector, *faultfs.Rule) {
	looks := faultfs.At(1<<30, false, faultfs.Fault{}, faultfs.OnKind(faultfs.Usage))
	return faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		looks.Inject(op)
		return inj.Inject(op)
	}), looks
}

// requireHeldUp checks a store of which a reservation hangs.
func (l *hungLife) requireHeldUp(looks *faultfs.Rule) {
	before := looks.Count()
	var stuck []vfs.Operation
	for range 10 {
		time.Sleep(housekeepingEvery)
		stuck = l.watched.Pass(housekeepingEvery, time.Second)
	}
	require.GreaterOrEqual(l.t, looks.Count()-before, 9, "the maintenance loop goes on")
	require.NotEmpty(l.t, stuck, "a reservation hangs")
	for _, op := range stuck {
		require.Equal(l.t, "reserve", op.Kind)
	}
	l.read()
}

// requireGoesOn checks that all is well after the disk was held up.
func (l *hungLife) requireGoesOn() {
	for range 20 {
		if l.write() == 0 {
			break
		}
	}
	for range 200 {
		require.Zero(l.t, l.write(), "writes go on after the disk does")
	}
	l.read()
	require.NoError(l.t, l.e.Close())
	o := small(l.mem)
	var err error
	l.e, err = Open("data", o)
	require.NoError(l.t, err)
	l.read()
	require.NoError(l.t, l.e.Close())
}

// While a reservation of space hangs, writers that find no room give up when their
// contexts end; reads and the maintenance loop go on.
func TestAHungReservationHoldsUpNoCallerBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHungLife(t)
		g := newGate(faultfs.Reserve, "*.wal")
		defer g.open()
		inj, looks := l.keeps(g)
		l.disk.SetInjector(inj)
		late := 0
		for range 10_000 {
			if late = l.write(); late > 0 {
				break
			}
		}
		require.NotZero(t, late, "the log never ran out of what it had reserved")
		for range 3 {
			require.Equal(t, len(l.writes()), l.write(), "there is no room for any")
		}
		l.requireHeldUp(looks)
		g.open()
		l.requireGoesOn()
	})
}

// After the disk was full the maintenance loop tries to reserve space. If that hangs, the
// loop itself continues.
func TestAHungReservationDoesNotHoldUpMaintenance(t *testing.T) {
	for _, file := range []string{"*.wal", "BALLAST"} {
		t.Run(file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newHungLife(t)
				l.disk.SetInjector(faultfs.FailAt(0, syscall.ENOSPC, true, faultfs.OnKind(faultfs.Reserve), faultfs.OnName("*.wal")))
				for l.e.ReadOnly() == nil {
					_, err := l.e.Put(t.Context(), []byte("filler"), make([]byte, 1<<10), buffered)
					if err != nil {
						require.ErrorIs(t, err, kv.ErrReadOnly)
					}
				}
				require.NoError(t, vfs.RemoveIfThere(l.mem, "data/BALLAST"))
				g := newGate(faultfs.Reserve, file)
				defer g.open()
				inj, looks := l.keeps(g)
				l.disk.SetInjector(inj)
				l.e.disk.ballast.have.Store(0)
				l.requireHeldUp(looks)
				require.Error(t, l.e.ReadOnly())
				g.open()
				for l.e.ReadOnly() != nil {
					time.Sleep(housekeepingEvery)
				}
				l.requireGoesOn()
			})
		})
	}
}
