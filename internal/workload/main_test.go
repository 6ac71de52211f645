package workload

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mapTarget is a correct store.
type mapTarget struct {
	mu     sync.Mutex
	values map[string][]byte
}

func newMapTarget() *mapTarget { return &mapTarget{values: make(map[string][]byte)} }

func (m *mapTarget) Put(_ context.Context, key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[string(key)] = bytes.Clone(value)
	return nil
}

func (m *mapTarget) Delete(_ context.Context, key []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, string(key))
	return nil
}

func (m *mapTarget) Get(_ context.Context, key, buf []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[string(key)]
	return append(buf[:0], value...), ok, nil
}

func (m *mapTarget) DiskBytes() (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.values)), nil
}

func (m *mapTarget) Close() error { return nil }

// testConfig returns a short run with several workers.
func testConfig() Config {
	return Config{
		Mix:          Mixes[3],
		Workers:      4,
		Keys:         10_000,
		ValueBytes:   64,
		FindRate:     0.5,
		Distribution: Uniform,
		Seed:         1,
		Duration:     200 * time.Millisecond,
		Interval:     time.Second,
	}
}
