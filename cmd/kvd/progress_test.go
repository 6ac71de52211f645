package main

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestProgressSaysHowMuchHowFastAndHowLongStill(t *testing.T) {
	p := &progress{what: "lines"}
	p.items.Store(500)
	assert.Equal(t, "500 lines  250/s", p.text(2*time.Second))
	p.total.Store(4000)
	p.done.Store(1000)
	assert.Equal(t, "25%  500 lines  250/s  6s left", p.text(2*time.Second))
	p.bar = true
	assert.Equal(t, "[#######.......................] 25%  500 lines  250/s  6s left", p.text(2*time.Second))
	p.done.Store(4000)
	assert.Equal(t, "[##############################] 100%  500 lines  250/s", p.text(2*time.Second))
}

func TestProgressIntoAFileIsALineEveryTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := startProgress(&out, "keys", 0)
		p.items.Store(10)
		time.Sleep(5 * time.Second)
		p.close()
		assert.Equal(t, "10 keys  5/s\n10 keys  2/s\n", out.String())
	})
}

func TestTheWatermarkIsTheLeadingLinesWhateverTheOrder(t *testing.T) {
	w := newWatermark(10)
	w.begin(100)
	w.finish(position{12, 120})
	w.finish(position{13, 130})
	assert.Equal(t, position{10, 100}, w.reached(), "line 11 is not done")
	w.finish(position{11, 110})
	assert.Equal(t, position{13, 130}, w.reached(), "the checksum is that of the lines")

	const lines = 1000
	w = newWatermark(0)
	order := rand.Perm(lines)
	var group sync.WaitGroup
	for part := range 4 {
		group.Go(func() {
			for _, i := range order[part*lines/4 : (part+1)*lines/4] {
				w.finish(position{int64(i + 1), uint64(i)})
			}
		})
	}
	group.Wait()
	assert.Equal(t, position{lines, lines - 1}, w.reached())
	assert.Empty(t, w.ahead)
}
