package wal

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// openCopying opens a log as earlier versions did: recovery copied the data frames of the
// segments that were not surely synced to a new segment, which replaces them. Such logs
// must still be read, also if the recovery was interrupted.
func openCopying(t testing.TB, o Options) (*Log, []rec) {
	t.Helper()
	require.NoError(t, o.setDefaults())
	var recs []rec
	s, err := scanForOpen(o, func(r Record) error {
		recs = append(recs, rec{r.Base, r.Units, string(r.Payload)})
		return nil
	})
	require.NoError(t, err)
	require.False(t, s.clean, "nothing was copied of a log that was closed in order")
	l := newLog(o, s)
	require.NoError(t, l.syncNames())
	require.NoError(t, l.copyTail(s))
	a := l.mu.active
	a.last = l.mu.last
	l.mu.syncedAt, l.mu.marked = a.address(), a.address()
	l.background.Go(l.syncLoop)
	return l, recs
}

func (l *Log) copyTail(s *recoveryScan) error {
	dead := slices.Clone(s.dead)
	if s.unused != nil {
		dead = append(dead, s.unused)
	}
	if slices.ContainsFunc(dead, func(seg *scannedSegment) bool { return seg.stale }) {
		return errors.New("the test does not make left-overs")
	}
	from := len(s.live) - 1
	for from > 0 && s.live[from-1].num >= s.claim.segment {
		from--
	}
	kept, tail := s.live[:from], s.live[from:]
	if from == 0 {
		l.mu.low = l.mu.nextNum
	}
	if err := l.beginCopy(tail); err != nil {
		return err
	}
	for _, originals := range [][]*scannedSegment{tail[:1], slices.Concat(tail[1:], dead)} {
		if err := l.remove(originals); err != nil {
			return err
		}
	}
	l.keep(kept)
	return nil
}

func (l *Log) beginCopy(tail []*scannedSegment) error {
	first := tail[0]
	h := segmentHeader{store: l.opts.StoreID, num: l.mu.nextNum, prev: first.header.prev, replaces: first.num}
	l.mu.nextNum++
	a, err := createSegment(l.opts.FS, l.opts.Dir, h)
	if err != nil {
		return err
	}
	l.mu.active = a
	start, err := l.startFrame(first)
	if err != nil {
		return err
	}
	start.off, start.low, start.synced = a.off, l.mu.low, address{}
	if err := a.append(emptyFrame(h.id(), start)); err != nil {
		return err
	}
	for _, seg := range tail {
		if err := l.copyFrames(a, seg); err != nil {
			return err
		}
	}
	if err := a.file.Sync(); err != nil {
		return err
	}
	l.mu.syncedAt = a.address()
	if err := a.append(emptyFrame(h.id(), l.frameHere(FrameCopied))); err != nil {
		return err
	}
	if err := l.zeroFirst(a, a.off+min(firstZeros, l.opts.SegmentBytes)); err != nil {
		return err
	}
	return l.publish(a)
}

// startFrame reads the first frame of seg.
func (l *Log) startFrame(seg *scannedSegment) (f frame, err error) {
	r, _, err := openSegment(l.opts.FS, seg.name, seg.header.id())
	if err != nil {
		return frame{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	f, reason, err := r.next()
	if err == nil && f.kind != FrameStart {
		err = fmt.Errorf("%s begins with a %v: %s", seg.name, f.kind, reason)
	}
	return f, err
}

// copyFrames appends the data frames of seg to a.
func (l *Log) copyFrames(a *segment, seg *scannedSegment) (err error) {
	r, _, err := openSegment(l.opts.FS, seg.name, seg.header.id())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for r.off < seg.end {
		f, reason, err := r.next()
		if err != nil || reason != "" {
			return errors.Join(err, fmt.Errorf("%s at offset %d: %s", seg.name, r.off, reason))
		}
		if f.kind != FrameData {
			continue
		}
		f.off, f.low, f.synced = a.off, l.mu.low, address{}
		if err := a.append(sealFrame(append(make([]byte, frameHeaderBytes), f.payload...), a.header.id(), &f)); err != nil {
			return err
		}
	}
	return nil
}

// recoverCopying reopens what kill -9 leaves as an earlier version did.
func (w *world) recoverCopying() {
	image := w.disk.KillImage()
	w.disk.SetHook(nil)
	require.NoError(w.t, w.log.Close())
	w.disk, w.o.FS = image, image
	w.record()
	var recs []rec
	w.log, recs = openCopying(w.t, w.o)
	w.promises.check(w.t, recs, w.promises.written)
	w.acknowledged(len(w.promises.appended), kv.DurabilitySync)
}
