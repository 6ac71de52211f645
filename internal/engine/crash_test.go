package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// crashScripts are short lives of a store; each begins with its creation.
var crashScripts = map[string]func(w *crashWorld){
	"first start": func(w *crashWorld) { w.open() },
	"single synced puts": func(w *crashWorld) {
		w.open()
		for i := range 12 {
			w.put(key(i%5), synced)
		}
	},
	"every durability in turn": func(w *crashWorld) {
		w.open()
		for i := range 24 {
			w.put(key(i%7), []kv.WriteOptions{memory, buffered, synced, memory}[i%4])
			if i%6 == 5 {
				w.del(key(i%3), buffered)
			}
		}
	},
	"groups": func(w *crashWorld) {
		w.open()
		for round := range 3 {
			keys := make([]string, 10)
			for i := range keys {
				keys[i] = key(round + i)
			}
			w.together([]kv.WriteOptions{synced, buffered, synced}[round], keys...)
		}
	},
	"batches over partitions": func(w *crashWorld) {
		w.open()
		for i := range 10 {
			ops := []kv.Op{{Kind: kv.KindDelete, Key: []byte(key(i))}}
			for j := range 5 {
				ops = append(ops, w.putOp(key(100+j+i)))
			}
			w.batch([]kv.WriteOptions{synced, memory, buffered}[i%3], ops...)
			w.put(key(i+1), memory)
			if i == 4 {
				w.flush()
			}
		}
		w.flush()
	},
	"flush": func(w *crashWorld) {
		w.open()
		for i := range 30 {
			w.put(key(i%8), []kv.WriteOptions{memory, synced, buffered}[i%3])
			if i%10 == 9 {
				w.flush()
			}
		}
	},
	"log rotation": func(w *crashWorld) {
		w.open()
		for i := range 40 {
			w.put(key(i%9), []kv.WriteOptions{synced, buffered}[i%2])
			if i%15 == 14 {
				w.flush() // gives segments back
			}
		}
	},
	"compaction": func(w *crashWorld) {
		w.open()
		for round := range 5 {
			for i := range 8 {
				w.put(key(i+round), buffered)
			}
			w.flush()
		}
		w.compact()
		w.put(key(3), synced)
		w.compact()
	},
	"deletes down to the base": func(w *crashWorld) {
		w.open()
		for i := range 12 {
			w.put(key(i), buffered)
		}
		w.compact()
		for i := range 8 {
			w.del(key(i), []kv.WriteOptions{synced, memory}[i%2])
		}
		w.flush()
		w.put(key(2), synced)
		w.compact()
		for i := range 12 {
			w.del(key(i), buffered)
		}
		w.compact()
	},
	"restarts": func(w *crashWorld) {
		w.open()
		for round := range 3 {
			for i := range 6 {
				w.put(key(i*round), []kv.WriteOptions{memory, synced}[i%2])
			}
			if round == 1 {
				w.flush()
			}
			w.reopen()
		}
		w.put(key(1), synced)
	},
	"keys that expire": func(w *crashWorld) {
		w.open()
		for round := range 3 {
			for i := range 4 {
				w.putFor(key(i*round), []kv.WriteOptions{memory, synced}[i%2])
			}
			if round == 1 {
				w.compact()
			}
			w.reopen()
		}
		w.putFor(key(1), synced)
	},
	"killed and restarted": func(w *crashWorld) {
		w.open()
		for round := range 3 {
			for i := range 6 {
				w.put(key(i*round), []kv.WriteOptions{buffered, synced}[i%2])
			}
			if round == 1 {
				w.flush()
			}
			w.kill()
		}
		w.put(key(1), synced)
	},
	// Every recovery, also that of the images from before the kill, has less memory than the
	// log needs, and flushes as it replays.
	"opened with less memory": func(w *crashWorld) {
		w.opts.MemtableBytes, w.opts.SegmentBytes, w.pad = 4<<20, 16<<10, 3000
		w.keep /= 4 // the images are large
		w.open()
		for i := range 60 {
			o := []kv.WriteOptions{synced, buffered}[i%2]
			w.put(key(i%23), o)
			switch i % 10 {
			case 3:
				w.batch(o, w.putOp(key(i)), w.putOp(key(100+i)), kv.Op{Kind: kv.KindDelete, Key: []byte(key(i % 7))})
			case 6:
				w.named(o, w.putOp(key(200+i)))
			case 9:
				w.batch(o, rangeDelete(key(i%11), key(i%11+3)))
			}
		}
		w.opts.MemtableBytes = 128 << 10
		w.kill()
		require.NotZero(w.t, w.e.replayFrom, "the log fits into the memory")
		w.again()
		w.put(key(1), synced)
	},
	"range deletes": func(w *crashWorld) {
		w.open()
		for round := range 3 {
			o := []kv.WriteOptions{synced, memory, buffered}[round]
			for i := range 10 {
				w.put(key(i), []kv.WriteOptions{memory, synced}[i%2])
			}
			if round == 1 {
				w.flush()
			}
			w.batch(o, rangeDelete(key(round), key(round+4)))
			w.put(key(round+1), memory)
			w.batch(o, w.putOp(key(5)), w.putOp(key(20)), rangeDelete(key(4), key(7)), w.putOp(key(6)))
			if round == 1 {
				w.compact()
			}
		}
		w.batch(synced, rangeDelete(key(0), key(100)))
		w.compact()
	},
	"transactions over partitions": func(w *crashWorld) {
		w.open()
		for i := range 4 {
			w.named([]kv.WriteOptions{memory, synced}[i%2], w.putOp(key(i)))
		}
		present, missing := kv.Condition{Kind: kv.IfPresent}, kv.Condition{Kind: kv.IfAbsent}
		for i := range 5 {
			o := []kv.WriteOptions{synced, memory, buffered}[i%3]
			fresh := key(100 + i)
			w.commit(o, []string{key(i), key(i + 1)}, []kv.Guard{guard(key(0), present), guard(fresh, missing)},
				w.putOp(key(0)), w.putOp(key(1)), w.putOp(key(i+2)), w.putOp(fresh), w.putOp(fresh+"+"), rangeDelete(key(3), key(5)))
			between := func() { w.named(synced, w.putOp(key(2))) }
			if i == 2 {
				between = func() { w.named(memory, w.putOp(key(2))); w.flush() }
			}
			w.loses(kv.ErrConflict, []string{key(2)}, nil, between, w.putOp(key(6)), w.putOp(key(7)), w.putOp(key(8)))
			w.loses(kv.ErrConditionFailed, nil, []kv.Guard{guard(key(2), missing)}, nil, w.putOp(key(6)), w.putOp(key(7)))
		}
	},
	"named writes sent again": func(w *crashWorld) {
		w.open()
		for round := range 3 {
			o := []kv.WriteOptions{synced, buffered, buffered}[round]
			w.named(o, w.putOp(key(round)))
			w.named(o, w.putOp(key(1)))
			w.named(o, w.putOp(key(1)), w.putOp(key(10+round)), w.putOp(key(20+round)), rangeDelete(key(2), key(9)))
			w.namedIf(o, []kv.Guard{guard(key(30+round), kv.Condition{Kind: kv.IfAbsent})}, w.putOp(key(30+round)), w.putOp(key(1)))
			w.again()
			switch round {
			case 0:
				w.flush()
			case 1:
				w.kill()
			default:
				w.reopen()
			}
			w.again()
		}
		w.named(synced, w.putOp(key(1)))
	},
	"disk full": func(w *crashWorld) {
		w.open()
		for i := range 8 {
			w.put(key(i), synced)
		}
		usage, err := w.disk.Usage("data")
		require.NoError(w.t, err)
		used := int64(usage.Total - usage.Free)
		w.disk.SetCapacity(used + 500)
		full := false
		for i := 0; i < 40 && !full; i++ {
			full = w.tryPut(key(100+i), []kv.WriteOptions{buffered, synced}[i%2]) != nil
		}
		require.True(w.t, full, "a full disk takes no more puts")
		require.NoError(w.t, w.e.Err())
		require.NoError(w.t, w.e.Close())
		w.disk.SetCapacity(1 << 30)
		w.open()
		w.settle()
		w.put(key(2), synced)
		w.flush()
	},
}

func rangeDelete(from, to string) kv.Op {
	return kv.Op{Kind: kv.KindRangeDelete, Key: []byte(from), Value: []byte(to)}
}

// kill continues with what kill -9 leaves. REQUIRES: no write is in progress, and none was
// acknowledged at memory since the last flush.
func (w *crashWorld) kill() {
	old := w.e
	image := w.disk.KillImage()
	w.disk.SetHook(nil)
	require.NoError(w.t, old.Close())
	w.disk, w.opts.FS = image, image
	w.watch()
	w.open()
}

// tally counts what a run of crash points found.
type tally struct{ images, lost, torn, twice, other atomic.Int64 }

// TestEveryCrashPoint cuts the power, or kills the process, before every disk operation of
// a short life of a store, opens what is left, and does the same during that recovery.
//
// It checks a sample of the images. With KVD_CRASH_IMAGES=n it checks all images of
// successive seeds, from KVD_CRASH_SEED on, until there were n.
func TestEveryCrashPoint(t *testing.T) {
	want, keep := int64(0), 0.025
	if testsize.Reduced() {
		keep = 0.006
	}
	if s := os.Getenv("KVD_CRASH_IMAGES"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		want, keep = n, 1
	}
	seed := uint64(1)
	if s := os.Getenv("KVD_CRASH_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	var sum tally
	for ; ; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			for name, script := range crashScripts {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					crashEverywhere(t, name, script, seed, keep, &sum)
				})
			}
		})
		if t.Failed() || sum.images.Load() >= want {
			break
		}
	}
	t.Logf("crash images: %d checked, %d lost, %d torn, %d twice", sum.images.Load(), sum.lost.Load(), sum.torn.Load(), sum.twice.Load())
}

func crashEverywhere(t *testing.T, name string, script func(*crashWorld), seed uint64, keep float64, sum *tally) {
	disk := vfs.NewMem()
	w := &crashWorld{t: t, name: name, seed: seed, keep: keep, disk: disk, opts: crashOptions(disk, seed)}
	w.watch()
	script(w)
	w.finish()
	line := w.timeline()
	images := w.images
	for i := range images {
		img := &images[i]
		again := w.rng(img.step.N, vfs.CrashPolicy(i)).IntN(10) == 0
		deeper, err := w.recover(line, img, again)
		sum.count(err)
		if err != nil {
			t.Fatalf("%s, seed %d, %s before step %d (%s %s), owed %+v:\n%v",
				name, seed, img.what, img.step.N, img.step.Kind, img.step.Name, img.owed, err)
		}
		for j := range deeper {
			second := &deeper[j]
			_, err := w.recover(line, second, false)
			sum.count(err)
			if err != nil {
				t.Fatalf("%s, seed %d, %s before step %d (%s %s), then %s before step %d of the recovery (%s %s), owed %+v:\n%v",
					name, seed, img.what, img.step.N, img.step.Kind, img.step.Name,
					second.what, second.step.N, second.step.Kind, second.step.Name, second.owed, err)
			}
		}
		images[i] = crashImage{} // its memory
	}
}

func crashOptions(fsys vfs.FS, seed uint64) Options {
	o := small(fsys)
	o.Partitions = 2 + int(seed%3)
	o.SegmentBytes = 2 << 10
	o.workers = 2
	o.table.BlockBytes = 512
	o.ValueThreshold = []int{20, 1000, 1}[seed%3] // some values apart, none, all
	o.compaction.MaxGarbage = 20
	return o
}

func (s *tally) count(err error) {
	s.images.Add(1)
	switch {
	case errors.Is(err, errLost):
		s.lost.Add(1)
	case errors.Is(err, errTorn):
		s.torn.Add(1)
	case errors.Is(err, errTwice):
		s.twice.Add(1)
	case err != nil:
		s.other.Add(1)
	}
}

// recover opens an image, compares, goes on writing, and crashes again. If again
// is set it keeps images of the recovery, and opens a copy of the image to see
// that recovery gives the same twice.
func (w *crashWorld) recover(line *timeline, img *crashImage, again bool) (deeper []crashImage, err error) {
	twin := img.disk.KillImage()
	inner := crashWorld{seed: w.seed + uint64(img.step.N), keep: 0.1, disk: img.disk, owed: img.owed}
	if again {
		inner.watch()
	}
	state, next, err := w.comesBack(line, img.disk, img.due)
	if err != nil {
		return nil, err
	}
	if next <= img.owed.seen {
		return nil, fmt.Errorf("the next version is %d, but %d was already given out", next, img.owed.seen)
	}
	deeper = inner.images
	if again {
		same, _, err := w.comesBack(line, twin, img.due)
		if err != nil {
			return nil, fmt.Errorf("a second time: %w", err)
		}
		if digest(state) != digest(same) {
			return nil, fmt.Errorf("opened twice, got\n%s\nand\n%s", digest(state), digest(same))
		}
	}
	return deeper, nil
}

// comesBack opens a disk and checks its state, sends writes with request ids again, makes
// new writes, cuts the power, and checks again. It returns the first state.
func (w *crashWorld) comesBack(line *timeline, disk *vfs.Mem, due kv.SeqNum) (state map[string]string, next kv.SeqNum, err error) {
	disk.SetCapacity(1 << 30) // no longer full
	o := w.opts
	o.FS = disk
	e, err := Open("data", o)
	disk.SetHook(nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		err = errors.Join(err, e.Close())
		if err == nil {
			err = requireTidy(disk, o.Partitions)
		}
	}()
	if state, err = line.state(e); err != nil {
		return nil, 0, err
	}
	back, err := line.judge(state, due)
	if err != nil {
		return nil, 0, err
	}
	complete, versions := maps.Clone(state), map[*issuedWrite]kv.SeqNum{}
	if err := line.sendAgain(e, complete, back, versions); err != nil {
		return nil, 0, err
	}
	next, err = e.Put(context.Background(), []byte("after"), []byte("crash"), synced)
	if err != nil {
		return nil, 0, err
	}
	o.FS = disk.CrashImage(vfs.DropAll, nil)
	second, err := Open("data", o)
	if err != nil {
		return nil, 0, fmt.Errorf("after a second crash: %w", err)
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	got, err := line.state(second)
	if err != nil {
		return nil, 0, fmt.Errorf("after a second crash: %w", err)
	}
	complete["after"] = versioned([]byte("crash"), next)
	if want, have := digest(complete), digest(got); have != want {
		return nil, 0, fmt.Errorf("after a second crash there is\n%s\nwant\n%s", have, want)
	}
	if err := line.sendAgain(second, complete, back, versions); err != nil {
		return nil, 0, fmt.Errorf("after a second crash: %w", err)
	}
	if got, err = line.state(second); err != nil || digest(got) != digest(complete) {
		return nil, 0, fmt.Errorf("after a second crash, and all sent again, there is\n%s\nwant\n%s, %w", digest(got), digest(complete), err)
	}
	return state, next, nil
}
