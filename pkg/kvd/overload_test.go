package kvd

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	// firstBackoff bounds the wait before the second try of a call, and retriesOfAll the tries
	// after the first ones of a client's calls while all fail.
	firstBackoff = 40 * time.Millisecond
	retriesOfAll = 4096
)

// refuseAll refuses every operation of a frame.
func refuseAll(r *kvdpb.PipelineRequest, retryAfter time.Duration) *kvdpb.PipelineResponse {
	refused := &kvdpb.PipelineResponse{}
	for _, op := range r.Ops {
		refused.Results = append(refused.Results, &kvdpb.PipelineResponse_Result{Tag: op.Tag, Status: &kvdpb.Status{
			Code: int32(codes.ResourceExhausted), Reason: kvdpb.ReasonOverloaded, RetryAfterMs: uint32(retryAfter / time.Millisecond),
		}})
	}
	return refused
}

// answering is a server that has an answer for each frame, in order.
func answering(answer func(*kvdpb.PipelineRequest) *kvdpb.PipelineResponse) *servertest.Scripted {
	return &servertest.Scripted{Frames: func(_ int, conn servertest.FrameConn) error {
		for {
			r, err := conn.Recv()
			if err != nil {
				return nil
			}
			if err := conn.Send(answer(r)); err != nil {
				return err
			}
		}
	}}
}

// callAll has so many callers call at once, and waits for them.
func callAll(callers int, call func(caller int)) {
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() { call(caller) })
	}
	all.Wait()
}

func keyOf(caller int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(caller)) }

// Blocking callers are at most one operation each, however slow the server is: none is refused,
// and none is served repeatedly while others wait.
func TestCallersAreNotRefusedForBeingMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, calls, disk = 3000, 3, 50 * time.Millisecond
		db := openOn(t, answering(func(r *kvdpb.PipelineRequest) *kvdpb.PipelineResponse {
			time.Sleep(disk)
			return servertest.AnswerAll(r)
		}))
		var worst atomic.Int64 // of the second call and those after it, when all wait
		callAll(callers, func(caller int) {
			for n := range calls {
				begun := time.Now()
				if !assert.NoError(t, db.Put(t.Context(), keyOf(caller), nil)) {
					return
				}
				for took := int64(time.Since(begun)); n > 0; {
					if old := worst.Load(); took <= old || worst.CompareAndSwap(old, took) {
						break
					}
				}
			}
		})
		frames := callers/256 + 1 // the default of Batching.MaxOps
		assert.Less(t, time.Duration(worst.Load()), 2*time.Duration(frames)*disk, "those who came before are served before")
	})
}

// Refused calls are retried after RetryAfter, at different times.
func TestThoseWhoWereRefusedDoNotComeBackTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, asked = 100, time.Second
		var begun time.Time
		var mu sync.Mutex
		refused := make(map[string]bool)
		arrivals := make(map[time.Duration]int)
		db := openOn(t, answering(func(r *kvdpb.PipelineRequest) *kvdpb.PipelineResponse {
			mu.Lock()
			defer mu.Unlock()
			again := false
			for _, op := range r.Ops {
				key := string(op.GetPut().GetItem().GetKey())
				if again = refused[key]; again {
					arrivals[time.Since(begun)]++
				}
				refused[key] = true
			}
			if again {
				return servertest.AnswerAll(r)
			}
			return refuseAll(r, asked)
		}))
		begun = time.Now()
		callAll(callers, func(caller int) { assert.NoError(t, db.Put(t.Context(), keyOf(caller), nil)) })
		total := 0
		for at, n := range arrivals {
			assert.GreaterOrEqual(t, at, asked)
			assert.Less(t, at, asked+firstBackoff)
			assert.Less(t, n, callers/2)
			total += n
		}
		assert.Equal(t, callers, total)
	})
}

// A server that refuses everything gets hardly more tries than there are calls, and each call
// returns the reason. Once the server accepts calls again, all are served.
func TestRefusedCallsDoNotBecomeTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, calls, asked = 500, 4, 30 * time.Millisecond
		var tries atomic.Int64
		var recovered atomic.Bool
		db := openOn(t, answering(func(r *kvdpb.PipelineRequest) *kvdpb.PipelineResponse {
			if recovered.Load() {
				return servertest.AnswerAll(r)
			}
			tries.Add(int64(len(r.Ops)))
			return refuseAll(r, asked)
		}))
		callAll(callers, func(caller int) {
			for range calls {
				err := db.Put(t.Context(), keyOf(caller), nil)
				assert.ErrorIs(t, err, ErrOverloaded)
				assert.NotErrorIs(t, err, ErrUncertain, "nothing was done")
				if e, ok := errors.AsType[*Error](err); assert.True(t, ok) {
					assert.Equal(t, kvdpb.ReasonOverloaded, e.Reason)
					assert.Equal(t, asked, e.RetryAfter)
				}
			}
		})
		assert.LessOrEqual(t, tries.Load(), int64(callers*calls+retriesOfAll))
		recovered.Store(true)
		callAll(callers, func(caller int) { assert.NoError(t, db.Put(t.Context(), keyOf(caller), nil)) })
	})
}
