package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// tame is a real store that uses little of the processor, for tests that measure for some time
// whatever the rate.
type tame struct {
	kvd.Store
	pause time.Duration // after each call
	calls *atomic.Int64 // of Put, Get and Delete; nil: not counted
	enough
}

// enough ends a context at a call.
type enough struct {
	at  int64
	end context.CancelFunc
}

func (s *tame) called() {
	time.Sleep(s.pause)
	if s.calls != nil && s.calls.Add(1) == s.at {
		s.end()
	}
}

func (s *tame) Put(ctx context.Context, key, value []byte, opts ...kvd.WriteOption) error {
	defer s.called()
	return s.Store.Put(ctx, key, value, opts...)
}

func (s *tame) Delete(ctx context.Context, key []byte, opts ...kvd.WriteOption) error {
	defer s.called()
	return s.Store.Delete(ctx, key, opts...)
}

func (s *tame) Get(ctx context.Context, key []byte, opts ...kvd.ReadOption) ([]byte, error) {
	defer s.called()
	return s.Store.Get(ctx, key, opts...)
}

// opened replaces the store of a target by a tame one.
func (s tame) opened(t *testing.T) opener {
	return func(o *targetOptions) (workload.Target, targetInfo, error) {
		target, info, err := openTarget(o)
		if err != nil {
			return target, info, err
		}
		var of *storeTarget
		switch target := target.(type) {
		case *storeTarget:
			of = target
		case *meteredTarget:
			of = &target.storeTarget
		case *engineTarget:
			of = &target.storeTarget
		}
		require.NotNil(t, of, "%T", target)
		one := s
		one.Store = of.store
		of.store = &one
		return target, info, nil
	}
}

// pausing opens stores that pause after each call.
func pausing(t *testing.T, pause time.Duration) opener { return tame{pause: pause}.opened(t) }

// endingAfter opens stores of which the n-th call, of the preload too, ends the context. A test
// of a run that lasts until then depends neither on time nor on the speed of the machine.
func endingAfter(t *testing.T, n int64) (context.Context, opener) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, tame{calls: new(atomic.Int64), enough: enough{n, cancel}}.opened(t)
}
