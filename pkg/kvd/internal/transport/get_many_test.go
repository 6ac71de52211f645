package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A frame that may keep so many bytes keeps no response after it has more: its operations are refused.
func TestAFrameKeepsNoMoreThanItMay(t *testing.T) {
	f := &pendingFrame{count: 4, most: 10}
	response := func(tag uint64, bytes int) *frame.Response {
		return &frame.Response{Results: []frame.Result{{Tag: tag, HasPrevious: true, Value: make([]byte, bytes)}}}
	}
	for tag, bytes := range []int{10, 1} {
		assert.False(t, f.drops())
		all, ok := f.deliver(response(uint64(tag), bytes), tag == 0)
		assert.False(t, all)
		assert.True(t, ok)
	}
	assert.True(t, f.drops())
	all, ok := f.drop(response(3, 100))
	assert.False(t, all)
	assert.True(t, ok)
	all, ok = f.drop(response(2, 100))
	assert.True(t, all)
	assert.True(t, ok)
	assert.Len(t, f.answers, 2)
	assert.Equal(t, kvdpb.ReasonTooLarge, f.result(3).Reason)
	_, ok = f.drop(response(2, 1))
	assert.False(t, ok, "it is answered twice")
}
