package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/history"
)

// engineStore is one Engine as a history.Store.
type engineStore struct{ *Engine }

func (s engineStore) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) ([]kv.Item, kv.SeqNum, error) {
	scanner, err := s.Engine.Scan(ctx, r, o)
	if err != nil {
		return nil, 0, err
	}
	var items []kv.Item
	for scanner.Next() {
		item := *scanner.Item()
		item.Key, item.Value = slices.Clone(item.Key), slices.Clone(item.Value)
		items = append(items, item)
	}
	return items, scanner.Version(), errors.Join(scanner.Err(), scanner.Close())
}

func (s engineStore) Life() int { return 1 }

func (s engineStore) Restarted(context.Context, int) error {
	return errors.New("a write of a store that does not restart is in doubt")
}

// judgeRun performs a run and checks what the clients saw. The run ends before the test's
// deadline: with a faulty store the clients might try without end.
func judgeRun(t testing.TB, run *history.Run, s history.Store) history.Tally {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), testwait.Deadline())
	defer cancel()
	logs, tally, err := run.Do(ctx, s)
	report := history.Check(run.Keys, logs...)
	assert.NoError(t, err)
	require.Zero(t, report.Count, "%s", report)
	require.NoError(t, err)
	return tally
}

// restartingStore is a store that crashes: a history.Store over one engine after
// the other.
type restartingStore struct {
	life atomic.Pointer[life]
}

// life is an engine from its start to its end.
type life struct {
	store  engineStore
	number int
	over   atomic.Bool   // its answers count no more
	asked  sync.RWMutex  // read-locked by every call
	next   chan struct{} // closed when the next life serves
}

// begin makes an engine the present one.
func (s *restartingStore) begin(e *Engine) {
	old := s.life.Load()
	l := &life{store: engineStore{e}, number: 1, next: make(chan struct{})}
	if old != nil {
		l.number = old.number + 1
	}
	s.life.Store(l)
	if old != nil {
		close(old.next)
	}
}

// crash makes an image of the disk and ends the present life. What was answered before is
// in the image; later answers do not count. The engine that restart makes of the image
// serves from then on; the old one is closed once no call waits for it.
func (s *restartingStore) crash(restart func() (*Engine, error)) error {
	old := s.life.Load()
	old.over.Store(true)
	e, err := restart()
	if err != nil {
		return err
	}
	s.begin(e)
	old.asked.Lock()
	defer old.asked.Unlock()
	return old.store.Close()
}

func (s *restartingStore) Life() int { return s.life.Load().number }

func (s *restartingStore) Restarted(ctx context.Context, number int) error {
	for {
		l := s.life.Load()
		if l.number > number {
			return nil
		}
		select {
		case <-l.next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// during asks the present life, and returns history.ErrDown in place of its error
// if it ended before the answer.
func (s *restartingStore) during(ask func(engineStore) error) error {
	l := s.life.Load()
	l.asked.RLock()
	defer l.asked.RUnlock()
	if !l.over.Load() {
		err := ask(l.store)
		if !l.over.Load() {
			return err
		}
	}
	return fmt.Errorf("%w in life %d", history.ErrDown, l.number)
}

func (s *restartingStore) BeginSnapshot(ctx context.Context, lease time.Duration) (snapshot kv.Snapshot, err error) {
	err = s.during(func(e engineStore) error {
		snapshot, err = e.BeginSnapshot(ctx, lease)
		return err
	})
	return snapshot, err
}

func (s *restartingStore) ReleaseSnapshot(id uint64) { s.life.Load().store.ReleaseSnapshot(id) }

func (s *restartingStore) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	return s.during(func(e engineStore) error { return e.Lookup(ctx, reads) })
}

func (s *restartingStore) LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (version kv.SeqNum, err error) {
	err = s.during(func(e engineStore) error {
		version, err = e.LookupAt(ctx, reads, at)
		return err
	})
	return version, err
}

func (s *restartingStore) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (items []kv.Item, at kv.SeqNum, err error) {
	err = s.during(func(e engineStore) error {
		items, at, err = e.Scan(ctx, r, o)
		return err
	})
	return items, at, err
}

func (s *restartingStore) Write(ctx context.Context, writes []*kv.Write) error {
	return s.during(func(e engineStore) error { return e.Write(ctx, writes) })
}

func (s *restartingStore) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (version kv.SeqNum, err error) {
	err = s.during(func(e engineStore) error {
		version, err = e.Apply(ctx, b, o)
		return err
	})
	return version, err
}

func (s *restartingStore) Commit(ctx context.Context, txn *kv.Transaction, o kv.WriteOptions) (version kv.SeqNum, err error) {
	err = s.during(func(e engineStore) error {
		version, err = e.Commit(ctx, txn, o)
		return err
	})
	return version, err
}

func (s *restartingStore) Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error) {
	err = s.during(func(e engineStore) error {
		succeeded, at, err = e.Execute(ctx, guards, then, otherwise, o)
		return err
	})
	return succeeded, at, err
}
