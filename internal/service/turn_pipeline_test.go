package service_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// A read that waits for the disk delays neither a later read nor a later write.
func TestAReadOfTheDiskHoldsUpNobody(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		store := servicetest.New(kv.DefaultLimits)
		entered, arrived := make(chan []string, 2), make(chan struct{})
		store.OnCached = func(key []byte) bool { return key[0] != 's' }
		store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
			var keys []string
			for _, r := range reads {
				keys = append(keys, string(r.Key))
			}
			entered <- keys
			<-arrived
			return nil
		}
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
		for _, key := range []string{"a", "slow", "b"} {
			f.put(t, key, "value of "+key)
		}
		p := open(t, f)
		p.send(getOp(1, "a"), getOp(2, "slow"), getOp(3, "b"), getOp(4, "s-none"))
		keys := <-entered
		if len(keys) == 2 {
			assert.Equal(t, []string{"slow", "s-none"}, keys, "memory has the others")
		}
		p.send(putOp(5, "c", "new"))
		assert.EqualValues(t, 5, p.result().Tag)
		if len(keys) == 2 { // else everything goes to Lookup, which waits
			p.send(getOp(6, "b"))
			assert.EqualValues(t, 6, p.result().Tag)
		}
		close(arrived)
		for tag, want := range []string{"value of a", "value of slow", "value of b"} {
			r := p.result()
			assert.EqualValues(t, tag+1, r.Tag)
			assert.Equal(t, want, string(r.GetGet().GetItem().GetValue()))
		}
		r := p.result()
		assert.EqualValues(t, 4, r.Tag)
		assert.Equal(t, "KEY_NOT_FOUND", r.Status.GetReason())
		p.close()
	})
}
