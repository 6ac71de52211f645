package service_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// The copies of a write are reserved whatever is before it in its message.
func TestTheCopiesOfAWriteAfterAReadAreReserved(t *testing.T) {
	const size = 1 << 20
	for name, ops := range map[string][]*kvdpb.PipelineRequest_Op{
		"a write":              {putOp(1, "b", strings.Repeat("x", size))},
		"a read, and a write":  {getOp(1, "a"), putOp(2, "b", strings.Repeat("x", size))},
		"a write, and a read":  {putOp(1, "b", strings.Repeat("x", size)), getOp(2, "a")},
		"no read, and a write": {getOp(1, ""), putOp(2, "b", strings.Repeat("x", size))},
	} {
		t.Run(name, func(t *testing.T) {
			store := servicetest.New(kv.DefaultLimits)
			var f *fixture
			reserved := int64(0)
			store.OnWrite = func(context.Context, []*kv.Write) error {
				reserved = f.Stats().Bytes
				return nil
			}
			f = start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
			p := f.pipeline(t)
			p.send(ops...)
			for range ops {
				p.result()
			}
			assert.GreaterOrEqual(t, reserved, int64(service.WriteCopies*size), "%d copies", service.WriteCopies)
			p.close()
		})
	}
}
