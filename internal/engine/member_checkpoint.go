package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Checkpoint implements Member. The tables hold everything up to the position, and perhaps
// later writes, which a node that continues from there skips by number, as after a restart
// (M3). It learns the request ids of those by that too: the position is a nameSpan old, if
// the log reaches back so far and no node was added since. Until Release the log after the
// position is kept.
func (m *member) Checkpoint(ctx context.Context, rate int64) (*Checkpoint, Position, error) {
	if err := m.e.Err(); err != nil {
		return nil, Position{}, err
	}
	c, err := m.e.newCheckpoint(rate)
	if err != nil {
		return nil, Position{}, err
	}
	at, err := m.collect(ctx, c)
	if c, err = c.made(err); err != nil {
		return nil, Position{}, err
	}
	return c, at, nil
}

// collect adds the files of a checkpoint for another node, and returns its position.
func (m *member) collect(ctx context.Context, c *Checkpoint) (Position, error) {
	flushed, err := m.flushVisible(ctx)
	if err != nil {
		return Position{}, err
	}
	at, err := m.hold(c, flushed, time.Now().Add(-nameSpan))
	if err != nil {
		return Position{}, err
	}
	versions, err := c.keep(nil)
	if err != nil {
		return Position{}, err
	}
	c.version = at.Seq
	c.addData(descriptor.Name, m.e.descriptor.Encode())
	for _, version := range versions {
		v := *version
		v.Position = at.Encode()
		c.addPartition(&v)
	}
	return at, nil
}

// flushVisible flushes until the tables hold everything up to the number that it returns: what
// is visible now.
func (m *member) flushVisible(ctx context.Context) (kv.SeqNum, error) {
	defer m.e.hurry()()
	visible := min(m.e.sequencer.Visible(), kv.SeqNum(m.applied.Load())) // as in trim
	for _, p := range m.e.partitions {
		for {
			if err := p.FlushAll(ctx); err != nil {
				return 0, err
			}
			if low, ok := p.UnflushedFrom(); !ok || low > visible {
				break
			}
		}
	}
	return visible, nil
}

// hold chooses the position of a checkpoint, and keeps the log after it until unhold. It is a
// place that was passed by a time, if that is possible.
func (m *member) hold(c *Checkpoint, flushed kv.SeqNum, until time.Time) (Position, error) {
	m.holding.Lock()
	defer m.holding.Unlock()
	at, ok := m.places.from(flushed, until, nameSpanSegments*m.e.opts.SegmentBytes)
	if !ok {
		return Position{}, &kv.OverloadError{Reason: "checkpoint_position", RetryAfter: time.Second}
	}
	m.holds[c] = at.Index
	return at, nil
}

func (m *member) unhold(c *Checkpoint) {
	m.holding.Lock()
	defer m.holding.Unlock()
	delete(m.holds, c)
}

// installReceived puts a checkpoint that was received from another node in the place of the
// partitions, if the log says so: it begins at the position of the checkpoint. That is durable
// only after all of the checkpoint is. A checkpoint of another position was received and not
// installed: it stays, and what is the same in the next one is not fetched again.
//
// Errors: those of received.
func installReceived(fsys vfs.FS, dir string, d descriptor.Descriptor, begin LogBegin) error {
	in, at, err := received(fsys, dir, d.Partitions)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && at == begin:
		err = in.Install(fsys, dir)
	}
	if err != nil {
		return fmt.Errorf("checkpoint of another node: %w", err)
	}
	return nil
}

// received returns what was received in a data directory, and its position.
//
// Errors: fs.ErrNotExist if there is none; a *kv.CorruptionError if it is damaged;
// kv.ErrInvalidArgument if it has another number of partitions.
func received(fsys vfs.FS, dir string, partitions int) (*backup.Installed, LogBegin, error) {
	in, err := backup.Received(fsys, dir)
	if err != nil {
		return nil, LogBegin{}, err
	}
	if len(in.Partitions) != partitions {
		return nil, LogBegin{}, fmt.Errorf("%w: this store has %d partitions, that of the other node has %d: this node was made with another --partitions; make a new one, under a new id",
			kv.ErrInvalidArgument, partitions, len(in.Partitions))
	}
	var first LogBegin
	for i, v := range in.Partitions {
		at, err := DecodePosition(v.Position)
		if err != nil {
			return nil, LogBegin{}, err
		}
		if i == 0 {
			first = LogBegin{at.Index, at.Term}
		} else if first != (LogBegin{at.Index, at.Term}) {
			return nil, LogBegin{}, kv.Corruptf(path.Join(dir, descriptor.IncomingName), -1, "the partitions are at indexes %d and %d of the log", first.Index, at.Index)
		}
	}
	return in, first, nil
}

// CheckReceived checks that what was received in a data directory is a checkpoint at a place in
// the log, which can be installed there.
//
// Errors: fs.ErrNotExist if there is none; a *kv.CorruptionError if it is damaged or of another
// place; kv.ErrInvalidArgument if it has another number of partitions.
func CheckReceived(fsys vfs.FS, dir string, want LogBegin) error {
	d, err := descriptor.Read(fsys, dir)
	if err != nil {
		return err
	}
	_, at, err := received(fsys, dir, d.Partitions)
	if err == nil && at != want {
		err = kv.Corruptf(path.Join(dir, descriptor.IncomingName), -1, "it is of index %d of the log, want %d", at.Index, want.Index)
	}
	return err
}
