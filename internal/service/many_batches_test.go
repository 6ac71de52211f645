package service_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// batchesAtOnce is how many batches of a frame are served at the same time.
const batchesAtOnce = 256

// A frame may have a batch for each operation, as reads at versions of their own are: what the batches
// occupy is reserved, and the goroutines that serve them, too.
func TestAFrameOfManyBatchesReservesTheirGoroutines(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	var inside atomic.Int64
	goOn := make(chan struct{})
	store.OnLookup = func(context.Context, []*kv.Lookup) error {
		inside.Add(1)
		<-goOn
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	var ops []frame.Op
	for i := range frame.MaxOps {
		ops = append(ops, frame.Op{Kind: frame.Get, Key: []byte{1}, AtVersion: uint64(i + 1)})
	}
	c := f.raw(t)
	data := framed(frame.ReadFrame, frame.Header{ID: 1}, ops...)
	before := memoryInUse()
	assert.NoError(t, c.send(data))
	testwait.Until(t, func() bool { return inside.Load() >= batchesAtOnce })
	used, reserved := memoryInUse()-before, f.Stats().Bytes
	close(goOn)
	t.Logf("a frame of %d bytes, with %d batches inside the store, occupies %d KiB, and %d KiB are reserved", len(data), inside.Load(), used>>10, reserved>>10)
	assert.LessOrEqual(t, used, reserved)
	for n := 0; n < frame.MaxOps; {
		n += len(c.answer(t).Results)
	}
}

// Reads at many versions that wait hold up neither the writes of their frame nor its other reads,
// wherever these are in it.
func TestReadsAtManyVersionsHoldUpNoOthers(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		if string(reads[0].Key) == "at a version" {
			<-goOn
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	var ops []*kvdpb.PipelineRequest_Op
	for tag := range uint64(frame.MaxOps - 3) {
		op := getOp(tag, "at a version")
		op.GetGet().AtVersion = tag + 1
		ops = append(ops, op)
	}
	others := []*kvdpb.PipelineRequest_Op{
		getOp(2001, "newest"),
		durablePutOp(2002, "a", "", kvdpb.Durability_DURABILITY_SYNC),
		durablePutOp(2003, "b", "", kvdpb.Durability_DURABILITY_MEMORY),
	}
	p := f.pipeline(t)
	p.send(append(ops, others...)...)
	assert.ElementsMatch(t, []uint64{2001, 2002, 2003}, []uint64{p.result().Tag, p.result().Tag, p.result().Tag})
	release()
	for range ops {
		p.result()
	}
	p.close()
}

func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
