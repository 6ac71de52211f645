package commit

import (
	"math/rand/v2"
	"testing"

	"github.com/kvd-db/kvd/internal/kv"
)

// A record finds each request id that it has, and no other one, whether or not ids share bits of
// its filter.
func TestARecordFindsItsRequestIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, nth := range map[string]func(i uint64) requestID{
		"of one client":            func(i uint64) requestID { return requestID{7, i} },
		"of one client, backwards": func(i uint64) requestID { return requestID{7, 1<<63 - i} },
		"of many clients":          func(uint64) requestID { return requestID{rng.Uint64(), 1} },
		"that share a bit":         func(i uint64) requestID { return requestID{7, i << 20} },
		"with equal sums":          func(i uint64) requestID { return requestID{-i, i} },
	} {
		var r pending
		for i := range uint64(1100) {
			id := nth(i)
			if at := r.findNamed(id); at >= 0 { // no assertions: this runs often
				t.Fatalf("%s: %d is found at %d", name, i, at)
			}
			r.addNamed(identifiedUnit{id, 0, uint32(i)})
		}
		for i := range r.named {
			if r.findNamed(r.named[i].id) != i {
				t.Fatalf("%s: %d is not found", name, i)
			}
		}
	}
}

// BenchmarkNamedWrites admits the writes of a record with request ids, of one client and of many.
func BenchmarkNamedWrites(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, client := range map[string]func() uint64{"one client": func() uint64 { return 7 }, "many clients": rng.Uint64} {
		b.Run(name, func(b *testing.B) {
			ids := newRequestIDs(NewRequestWindow(1 << 18))
			writes := make([]kv.Write, 512)
			for i := range writes {
				writes[i].RequestID = kv.RequestID{ClientID: client(), Sequence: uint64(i + 1)}
			}
			for b.Loop() {
				var rec pending
				for i := range writes {
					if w := &writes[i]; rec.isNew(w, ids) {
						rec.addNamed(identifiedUnit{requestIDOf(w.RequestID), 0, uint32(i)})
					}
				}
			}
		})
	}
}
