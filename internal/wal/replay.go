package wal

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Replay calls replay for the records from number from on that the log held when Open
// read it, oldest first. It serves callers that had no room for all records during Open,
// and must be called before the first Append. The payload is borrowed until replay
// returns. replay may call Reclaim for records that were replayed before.
//
// The replayed records are on the disk, unless the log is suspended. Cost: reads the log
// from the segment on that holds number from.
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

func (l *Log) replaySegment(seg *scannedSegment, from kv.SeqNum, replay func(Record) error) (err error) {
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
			return kv.Corruptf(seg.name, r.off, "%s, but Open found a frame here", reason)
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
