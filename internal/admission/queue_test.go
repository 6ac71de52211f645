package admission

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// order has clients queue frames of so many operations and returns in which order
// they come in, each as client:operations.
func order(clients map[string][]int) string {
	var q queue
	names := make(map[*Client]string)
	for _, name := range []string{"a", "b", "c"} {
		c := new(Client)
		names[c] = name
		for _, ops := range clients[name] {
			q.push(&waiter{client: c, size: Size{Ops: ops}})
		}
	}
	var b strings.Builder
	for !q.empty() {
		w := q.next()
		w.charge()
		fmt.Fprintf(&b, "%s:%d ", names[w.client], w.size.Ops)
		q.remove(w)
	}
	return strings.TrimSpace(b.String())
}

// The quantum is 256. What a client cannot use at its turn is saved (Shreedhar and
// Varghese, section 3.1).
func TestTurns(t *testing.T) {
	for name, test := range map[string]struct {
		clients map[string][]int
		want    string
	}{
		"alone": {map[string][]int{"a": {1, 2000, 1}}, "a:1 a:2000 a:1"},
		"equal frames": {
			map[string][]int{"a": {256, 256}, "b": {256, 256}, "c": {256}},
			"a:256 b:256 c:256 a:256 b:256",
		},
		"many small ones have one turn": {
			map[string][]int{"a": {128, 128, 128, 128}, "b": {256, 256}},
			"a:128 a:128 b:256 a:128 a:128 b:256",
		},
		"a large one waits for four turns": {
			map[string][]int{"a": {1024, 1024}, "b": {200, 200, 200, 200, 200, 200}},
			// b saves 56 with each turn, which is enough for two at its fourth
			"b:200 b:200 b:200 a:1024 b:200 b:200 b:200 a:1024",
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, order(test.clients)) })
	}
}

func TestAClientThatStopsWaitingLosesWhatItSaved(t *testing.T) {
	var q queue
	var a, b Client
	q.push(&waiter{client: &a, size: Size{Ops: 1000}})
	q.push(&waiter{client: &b, size: Size{Ops: 1}})
	q.remove(q.next())
	assert.Equal(t, 2*quantum, a.alone.saved)
	q.remove(q.next())
	q.push(&waiter{client: &a, size: Size{Ops: 1000}})
	assert.Equal(t, quantum, a.saved)
	assert.Equal(t, quantum, a.alone.saved)
}

// Many clients of one peer have as many turns as one, and share them.
func TestClientsOfOnePeerShareItsTurns(t *testing.T) {
	var q queue
	var many Peer
	names := make(map[*Client]string)
	add := func(name string, peer *Peer, frames ...int) {
		c := &Client{Peer: peer}
		names[c] = name
		for _, ops := range frames {
			q.push(&waiter{client: c, size: Size{Ops: ops}})
		}
	}
	add("a1", &many, 256, 256)
	add("a2", &many, 128, 128)
	add("a3", &many, 512)
	add("b", nil, 256, 256, 256, 256, 256)
	var order []string
	for !q.empty() {
		w := q.next()
		w.charge()
		order = append(order, names[w.client])
		q.remove(w)
	}
	assert.Equal(t, "a1 b a2 a2 b a1 b b a3 b", strings.Join(order, " "))
	assert.Zero(t, q.size)
	assert.Zero(t, many.size)
	assert.Nil(t, many.turn)
}

func TestRetryAfterGrowsWithTheOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		around := func(want time.Duration) {
			t.Helper()
			low, high := time.Hour, time.Duration(0)
			for range 1000 {
				r := q.retryAfter(time.Now())
				low, high = min(low, r), max(high, r)
			}
			require.GreaterOrEqual(t, low, want/2)
			require.Less(t, low, want*6/10, "it is spread")
			require.Less(t, high, want*3/2)
			require.Greater(t, high, want*14/10)
		}
		around(target)
		q.push(&waiter{client: new(Client), since: time.Now()})
		around(target)
		time.Sleep(20 * time.Millisecond)
		around(20 * time.Millisecond)
		q.limit(time.Now())
		time.Sleep(300 * time.Millisecond)
		young := &waiter{client: new(Client), since: time.Now()}
		q.push(young)
		q.remove(q.eldest())
		around(300 * time.Millisecond)
		time.Sleep(time.Hour)
		around(maxRetryAfter)
		q.remove(young)
		around(target)

		again := &waiter{client: new(Client), since: time.Now()}
		q.push(again)
		time.Sleep(2 * target)
		q.limit(time.Now())
		q.remove(again)
		time.Sleep(maxRetryAfter / 2)
		around(maxRetryAfter / 2) // the refused clients wait as told
		time.Sleep(maxRetryAfter)
		around(target)
	})
}
