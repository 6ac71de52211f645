package verify

import (
	"context"
	"errors"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// Segment reads a whole segment of the log that has a successor: every frame to the end
// frame, and what follows, which must be zeros. After each frame it passes the number of bytes
// to progress, which may block. A segment that is missing is no error, because the log may
// have deleted it.
func Segment(ctx context.Context, fsys vfs.FS, name string, storeID, num uint64, progress func(bytes int64)) error {
	last, number := wal.FrameInfo{}, kv.SeqNum(0) // the last frame, and the last number of a record
	info, err := wal.Dump(fsys, name, func(f wal.FrameInfo) error {
		switch {
		case last.Kind == wal.FrameEnd:
			return kv.Corruptf(name, f.Offset, "a frame follows the end frame of the segment")
		case last.Kind != 0 && f.Prev != number:
			return kv.Corruptf(name, f.Offset, "the frame follows number %d, the one before it ends at %d", f.Prev, number)
		}
		// After a crash a frame without records skips numbers: its Next says nothing of the last record.
		if last, number = f, f.Prev; f.Kind == wal.FrameData {
			number = f.Next - 1
		}
		progress(f.Bytes)
		return ctx.Err()
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.StoreID != storeID || info.Num != num:
		return kv.Corruptf(name, 0, "is segment %d of store %016x, want %d of %016x", info.Num, info.StoreID, num, storeID)
	case last.Kind != wal.FrameEnd:
		return kv.Corruptf(name, info.End, "no whole frame here, but the log continues in the next segment")
	case info.Tail > 0:
		return kv.Corruptf(name, info.End, "bytes follow the end frame of the segment")
	}
	return nil
}
