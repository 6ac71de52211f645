package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Replay calls replay for the records from number from on that the log held when Open read
// it, oldest first. It is for what the caller had no room for at that time, and is called
// before the first Append. The payload is borrowed until replay returns, which may have
// Reclaim give back what was replayed before.
//
// What it replays is on the disk, unless the log is suspended. Cost: reads the log from the
// segment on in which from lies.
func (l *Log) Replay(from kv.SeqNum, replay func(Record) error) error {
	for _, seg := range l.found {
		if seg.last < from {
			continue
		}
		if err := l.replaySegment(seg, from, replay); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) replaySegment(seg *surveyed, from kv.SeqNum, replay func(Record) error) (err error) {
	r, _, err := openSegment(l.opts.FS, seg.name, seg.header.id())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for r.off < seg.end {
		f, reason, err := r.next()
		if err != nil {
			return err
		}
		if reason != "" {
			return kv.Corruptf(seg.name, r.off, "%s, but there was a frame a moment ago", reason)
		}
		if f.kind != FrameData || f.next <= from {
			continue
		}
		if err := f.each(func(rec Record) error {
			if rec.Base < from {
				return nil
			}
			return replay(rec)
		}); err != nil {
			return fmt.Errorf("replay %s at offset %d: %w", seg.name, f.off, err)
		}
	}
	return nil
}
