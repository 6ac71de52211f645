package service_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testsize"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A client of gRPC answers each small frame of data with an update of a window and a ping.
// However many small calls it makes one after the other, that is no flood. The clock stands
// still meanwhile, so nothing is allowed for the time that passes.
func TestSmallCallsOneAfterTheOtherAreNoFlood(t *testing.T) {
	calls := 10_000
	if testsize.Reduced() {
		calls = 2000
	}
	for name, run := range map[string]func(t *testing.T, f *fixture){
		"unary": func(t *testing.T, f *fixture) {
			for i := range calls {
				_, err := f.kv.Get(t.Context(), &kvdpb.GetRequest{Key: []byte("k")})
				require.NoError(t, err, "call %d", i)
			}
		},
		"messages": func(t *testing.T, f *fixture) {
			stream, err := f.kv.Pipeline(t.Context())
			require.NoError(t, err)
			p := &pipeline{t: t, stream: stream}
			for range calls {
				p.send(getOp(1, "k"))
				require.NotNil(t, p.result().GetGet())
			}
			p.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startWith(t, kv.DefaultLimits, service.Options{})
				f.put(t, "k", "v")
				run(t, f)
				assert.Zero(t, f.Stats().Shed["flood"])
				assert.EqualValues(t, 1, f.Stats().Accepted)
			})
		})
	}
}
