package main

import (
	"errors"
	"fmt"
	"path"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// frameHeader is the bytes before the records of a group.
const frameHeader = 64

// groups is what the log writes at once where so many callers each put an entry.
func groups(_ *trial, entries []kv.Entry, size int) (c corpus, err error) {
	const dir = "log"
	fs := vfs.NewMem()
	if err := writeLog(fs, dir, entries, size); err != nil {
		return c, err
	}
	c.note = "read by recovery alone"
	names, err := fs.List(dir)
	if err != nil {
		return c, err
	}
	for _, name := range names {
		pieces, err := groupsOf(fs, path.Join(dir, name))
		if err != nil {
			return c, err
		}
		c.pieces = append(c.pieces, pieces...)
	}
	return c, nil
}

// writeLog puts the entries, but for a last group that would be smaller, each in a
// record of its own.
func writeLog(fs vfs.FS, dir string, entries []kv.Entry, size int) (err error) {
	l, _, err := wal.Open(wal.Options{FS: fs, Dir: dir, StoreID: 1, Fresh: true}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var encoder record.Encoder
	woken := make(signal, 1)
	for ; len(entries) >= size; entries = entries[size:] {
		var end wal.Pos
		for i := range entries[:size] {
			encoder.Reset()
			encoder.Section(int(tableID.Partition), 1)
			encoder.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: entries[i].Key, Value: entries[i].Value})
			if _, end, err = l.Append(encoder.Bytes(), 1, kv.DurabilityBuffered, woken, nil); err != nil {
				return err
			}
		}
		for l.Flush(); l.Written() < end; <-woken {
			if l.Err() != nil {
				return l.Err()
			}
		}
	}
	return nil
}

// signal holds one wake-up.
type signal chan struct{}

func (s signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Work implements wal.Waker.
func (s signal) RunReady() { s.Wake() }

// groupsOf returns the groups of a segment, each from its first record on.
func groupsOf(fs vfs.FS, name string) (groups [][]byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = wal.Dump(fs, name, func(i wal.FrameInfo) error {
		if i.Kind != wal.FrameData {
			return nil
		}
		group := make([]byte, i.Bytes-frameHeader)
		if _, err := f.ReadAt(group, i.Offset+frameHeader); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		groups = append(groups, group)
		return nil
	})
	return groups, err
}
