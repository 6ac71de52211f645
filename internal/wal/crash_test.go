package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// world runs a workload on a simulated disk, keeps the promises made to its callers, and
// keeps the images that a power cut or a kill could leave at every step.
type world struct {
	t    testing.TB
	disk *vfs.Mem
	o    Options
	log  *Log

	mu       sync.Mutex
	promises promises
	images   []image
	rng      *rand.Rand
}

// promises is what the log owes at one point of time. records are those appended, in
// order: the first of them, up to those that count as durable, must come back; the others
// may, as far as they form a prefix.
type promises struct {
	opened   bool // Open has returned: there is a log
	appended []rec
	durable  int
	written  int       // must come back after a kill
	flushed  kv.SeqNum // records up to this number may have been reclaimed
	seen     kv.SeqNum // no later record may have a number up to this
}

type image struct {
	label    string
	disk     *vfs.Mem
	promises promises
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, disk: newDisk(t), rng: rand.New(rand.NewPCG(1, 2))}
	w.o = testOptions(w.disk)
	w.o.SegmentBytes, w.o.idleMark = 1<<10, time.Hour
	return w
}

// record makes w keep images from here on.
func (w *world) record() { w.disk.SetHook(func(s vfs.Step) { w.snap(w.disk, s) }) }

func (w *world) snap(disk *vfs.Mem, s vfs.Step) {
	if s.Kind == vfs.StepReserve {
		return // it changes no image
	}
	for _, policy := range vfs.CrashPolicies {
		w.mu.Lock()
		before := w.promises
		img := disk.CrashImage(policy, w.rng)
		w.mu.Unlock()
		before.written = before.durable
		w.keep(image{fmt.Sprintf("%v before step %d (%s %s)", policy, s.N, s.Kind, s.Name), img, before})
	}
	w.mu.Lock()
	before := w.promises
	w.mu.Unlock()
	w.keep(image{fmt.Sprintf("kill before step %d (%s %s)", s.N, s.Kind, s.Name), disk.KillImage(), before})
}

// keep keeps an image with the promises from before it was made; records appended
// meanwhile may be in it too.
func (w *world) keep(img image) {
	w.mu.Lock()
	defer w.mu.Unlock()
	img.promises.appended, img.promises.seen = w.promises.appended, w.promises.seen
	w.images = append(w.images, img)
}

func (w *world) open() {
	var recs []rec
	var err error
	w.log, recs, _, err = openAll(w.o)
	require.NoError(w.t, err)
	w.promises.check(w.t, recs, w.promises.written)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.promises.opened, w.o.Fresh = true, false
}

// check compares the replayed records with those promised: at least the first must
// records come back.
func (p *promises) check(t testing.TB, recs []rec, must int) {
	t.Helper()
	gone := 0
	for gone < len(p.appended) && (len(recs) == 0 || p.appended[gone] != recs[0]) {
		gone++
	}
	if len(recs) == 0 {
		gone = min(gone, must)
	}
	for _, r := range p.appended[:gone] {
		require.LessOrEqual(t, r.base+kv.SeqNum(r.units)-1, p.flushed, "lost %+v", r)
	}
	require.GreaterOrEqual(t, gone+len(recs), must, "lost acknowledged records: %d came back", len(recs))
	require.LessOrEqual(t, gone+len(recs), len(p.appended), "more came back than was appended")
	for i, r := range recs {
		require.Equal(t, p.appended[gone+i], r)
	}
}

type promise struct {
	index int
	pos   Pos
	level kv.Durability
	waker signal
}

// add appends a record without flushing it.
func (w *world) add(bytes int, level kv.Durability) promise {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.promises.appended)
	body := fmt.Sprintf("%d:%s", n, strings.Repeat(string(rune('a'+n%26)), bytes))
	waker := make(signal, 1)
	base, pos, err := w.log.Append([]byte(body), uint32(n%3+1), level, waker, nil)
	for errors.Is(err, ErrNoRoomYet) {
		w.mu.Unlock() // a rotation, which the hook sees, may make room
		require.NoError(w.t, w.log.AwaitRoom(background))
		w.mu.Lock()
		base, pos, err = w.log.Append([]byte(body), uint32(n%3+1), level, waker, nil)
	}
	require.NoError(w.t, err)
	r := rec{base, uint32(n%3 + 1), body}
	w.promises.appended = append(w.promises.appended, r)
	w.promises.seen = base + kv.SeqNum(r.units) - 1
	return promise{n, pos, level, waker}
}

// await waits for the acknowledgement and checks it against the disk.
func (w *world) await(p promise) {
	for !reached(w.log, p.pos, p.level) {
		require.NoError(w.t, w.log.Err())
		<-p.waker
	}
	w.acknowledged(p.index+1, p.level)
}

func (w *world) acknowledged(n int, level kv.Durability) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch level {
	case kv.DurabilityMemory:
		return
	case kv.DurabilitySync:
		last := w.promises.appended[n-1]
		w.assertSynced(last.base + kv.SeqNum(last.units) - 1)
		w.promises.durable = max(w.promises.durable, n)
	}
	w.promises.written = max(w.promises.written, n)
}

// assertSynced checks the disk: every frame with a record up to that number, the header
// of its segment and the names on the path to it are synced.
func (w *world) assertSynced(last kv.SeqNum) {
	w.t.Helper()
	nums, err := listSegments(w.disk, testDir)
	require.NoError(w.t, err)
	for _, num := range nums {
		name := segmentName(testDir, num)
		_, err := Dump(w.disk, name, func(f FrameInfo) error {
			if f.Kind == FrameData && f.Records[0].Base <= last {
				assert.True(w.t, w.disk.SyncedBytes(name, 0, segmentHeaderBytes), "header of %s", name)
				assert.True(w.t, w.disk.SyncedBytes(name, f.Offset, f.Bytes), "%s at %d", name, f.Offset)
			}
			return nil
		})
		if err != nil {
			require.ErrorIs(w.t, err, kv.ErrCorrupt, "a segment may be incomplete")
		}
	}
}

func (w *world) put(bytes int, level kv.Durability) {
	p := w.add(bytes, level)
	w.log.Flush()
	w.await(p)
}

// putHere is put by a caller that syncs on its own goroutine.
func (w *world) putHere(bytes int) {
	p := w.add(bytes, synced)
	require.NoError(w.t, leadSync(w.log, p.pos))
	w.acknowledged(p.index+1, synced)
}

func (w *world) close() {
	require.NoError(w.t, w.log.Close())
	w.acknowledged(len(w.promises.appended), kv.DurabilitySync)
}

func (w *world) reclaim(upTo int) {
	w.mu.Lock()
	last := w.promises.appended[upTo-1]
	w.promises.flushed = last.base + kv.SeqNum(last.units) - 1
	w.mu.Unlock()
	require.NoError(w.t, w.log.Reclaim(w.promises.flushed))
}

// shrink makes the log leave its active segment, and reclaims that.
func (w *world) shrink() {
	w.mu.Lock()
	last := w.promises.appended[len(w.promises.appended)-1]
	w.promises.flushed = last.base + kv.SeqNum(last.units) - 1
	w.mu.Unlock()
	shrink(w.t, w.log, w.promises.flushed)
	require.NoError(w.t, w.log.Reclaim(w.promises.flushed))
}

// release makes the log give back space that it does not need, or all. It reports whether there was any.
func (w *world) release(all bool) bool {
	gave, err := w.log.Release(all)
	require.NoError(w.t, err)
	return gave
}

// shrink shrinks a log without writers.
func shrink(t testing.TB, l *Log, flushed kv.SeqNum) {
	t.Helper()
	l.mu.Lock()
	for l.mu.preparing || l.mu.sealed != nil || l.mu.writing || l.mu.syncing {
		l.mu.changed.Wait()
	}
	left := l.mu.active.header.num
	l.mu.Unlock()
	require.NoError(t, l.Shrink(flushed))
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Greater(t, l.mu.active.header.num, left)
}

const (
	memory   = kv.DurabilityMemory
	buffered = kv.DurabilityBuffered
	synced   = kv.DurabilitySync
)

// workloads are short histories of a log; each begins with its creation.
var workloads = map[string]func(w *world){
	"creation": func(w *world) { w.open() },
	"synced records": func(w *world) {
		w.open()
		for i := range 6 {
			w.put(20*i, synced)
		}
	},
	"groups of mixed durability": func(w *world) {
		w.open()
		for i := range 4 {
			a, b, c := w.add(10, memory), w.add(30*i, synced), w.add(10, buffered)
			w.log.Flush()
			w.await(c)
			d := w.add(5, memory)
			w.log.Flush()
			w.await(b)
			w.await(a)
			w.await(d)
		}
	},
	"buffered records": func(w *world) {
		w.open()
		for range 12 {
			w.put(150, buffered)
		}
		require.NoError(w.t, w.log.WaitSynced(background, w.log.Written()))
		w.acknowledged(12, synced)
		w.put(150, buffered)
	},
	"callers that sync": func(w *world) {
		w.open()
		for i := range 5 {
			a := w.add(100, buffered)
			w.putHere(50 * i)
			w.await(a)
			w.put(200, synced)
		}
	},
	"rotation": func(w *world) {
		w.open()
		for i := range 16 {
			w.put(250, []kv.Durability{synced, synced, buffered}[i%3])
		}
	},
	"records longer than a segment": func(w *world) {
		w.open()
		w.put(3000, synced)
		w.put(10, buffered)
		w.put(5000, buffered)
		w.put(10, synced)
		w.put(2000, synced)
	},
	"reclaim": func(w *world) {
		w.open()
		for range 10 {
			w.put(300, synced)
		}
		w.reclaim(7)
		w.put(300, synced)
		w.reclaim(11)
		w.put(10, synced)
	},
	"close and reopen": func(w *world) {
		w.open()
		w.put(100, synced)
		w.put(100, memory)
		w.close()
		w.open()
		w.put(300, synced)
		w.put(600, synced)
		w.close()
		w.open()
		w.close()
		w.open()
		w.put(10, synced)
	},
	"shrink": func(w *world) {
		w.open()
		for range 3 {
			w.put(200, synced)
		}
		w.shrink()
		w.put(100, buffered)
		w.put(400, synced)
		w.put(100, synced)
		w.shrink()
		w.close()
		w.open()
		w.put(100, synced)
	},
	"release": func(w *world) {
		w.o.SegmentBytes = 64 << 10
		w.open()
		require.True(w.t, w.release(false), "the log is idle")
		w.put(100, synced)
		w.release(false)
		w.put(300, buffered)
		w.release(true)
		w.close()
		w.open()
		require.True(w.t, w.release(false), "the log is idle")
		w.put(200, synced)
	},
	"recovered by an earlier version": func(w *world) {
		w.open()
		for i := range 7 {
			w.put(250, []kv.Durability{synced, buffered}[i%2])
		}
		w.recoverCopying()
		w.put(250, synced)
		w.put(300, buffered)
		w.reclaim(3)
		w.recoverCopying()
		for range 4 {
			w.put(300, synced)
		}
		w.reclaim(8)
	},
	"reclaim and reopen": func(w *world) {
		w.open()
		for range 5 {
			w.put(400, synced)
		}
		w.close()
		w.open()
		w.put(400, synced)
		w.reclaim(6)
		w.put(10, buffered)
		w.close()
		w.open()
		w.reclaim(7)
		w.put(400, synced)
	},
}

// depthTwo is the share of the images, one in so many, that is crashed again during
// recovery. With 1 the test takes minutes and has found nothing that 16 does not find.
const depthTwo = 16

// imageShare says that one image in so many is checked.
func imageShare() int {
	if testsize.Reduced() {
		return 11
	}
	return 3
}

// TestEveryCrashPoint cuts the power, or kills the process, before every operation on the
// disk, recovers, and does the same during the recovery.
func TestEveryCrashPoint(t *testing.T) {
	for name, work := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.record()
			work(w)
			w.disk.SetHook(nil)
			require.NoError(t, w.log.Close())
			require.NotEmpty(t, w.images)
			images, offset := w.images, w.rng.IntN(depthTwo)
			share := imageShare()
			for i, img := range images {
				if i%share != offset%share {
					continue
				}
				w.images = nil
				deeper := i%depthTwo == offset && !testsize.Reduced()
				w.checkRecovery(fmt.Sprintf("image %d: %s", i, img.label), img, deeper)
				for j, second := range w.images {
					w.checkRecovery(fmt.Sprintf("image %d: %s; then %d: %s", i, img.label, j, second.label), second, false)
				}
			}
			t.Logf("%d images", len(images))
		})
	}
}

// checkRecovery opens an image and compares the replayed records with those promised.
// Then it checks in one of three ways that they come back again. If deeper, it keeps
// images of its own while the log is opened.
func (w *world) checkRecovery(label string, img image, deeper bool) {
	t := w.t
	defer func() {
		if t.Failed() {
			t.Log(label)
		}
	}()
	o := w.o
	o.FS, o.Fresh = img.disk, !img.promises.opened
	same := o
	same.FS = img.disk.KillImage()
	w.promises = img.promises
	if deeper {
		img.disk.SetHook(func(s vfs.Step) { w.snap(img.disk, s) })
	}
	l, recs, r := mustOpen(t, o)
	img.disk.SetHook(nil)
	img.promises.check(t, recs, img.promises.written)
	require.Greater(t, r.NextSeq, img.promises.seen)
	o.Fresh = false

	switch w.rng.IntN(3) {
	case 0: // What was replayed stays, whatever happens next.
		cut := o
		cut.FS = img.disk.CrashImage(vfs.DropAll, nil)
		l2, recs2, _ := mustOpen(t, cut)
		require.Equal(t, recs, recs2)
		require.NoError(t, l2.Close())
	case 1: // The same image gives the same records again.
		l2, recs2, r2 := mustOpen(t, same)
		require.Equal(t, recs, recs2)
		require.Equal(t, r, r2)
		require.NoError(t, l2.Close())
	case 2: // The log works on.
		next := put(t, l, "next", 1, synced)
		require.Equal(t, r.NextSeq, next.base)
		require.NoError(t, l.Close())
		var recs2 []rec
		l, recs2, r = mustOpen(t, o)
		require.True(t, r.Clean)
		require.Equal(t, append(recs, next), recs2)
	}
	require.NoError(t, l.Close())
}
