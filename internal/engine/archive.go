package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/vfs"
)

// ArchiveOptions say where the commit log is archived: see backup.Archiver.
type ArchiveOptions struct {
	// Dir is the directory; empty: there is no archive. FS is its file system; default that
	// of the operating system, on which no operation is watched: an archive that hangs does
	// not stop the store.
	Dir string
	FS  vfs.FS
	// Interval is how long what is written may be missing in the archive; default one minute.
	Interval time.Duration
	// Backlog bounds the bytes of log segments that wait for the archive; default 4 GiB.
	Backlog int64
}

func (o *ArchiveOptions) setDefaults() {
	setDefault(&o.Interval, time.Minute)
	setDefault(&o.Backlog, 4<<30)
	if o.FS == nil {
		o.FS = vfs.OS
	}
}

// startArchiver starts to archive the log, which is open.
func (e *Engine) startArchiver() (err error) {
	o := &e.opts.Archive
	if o.Dir == "" || e.opts.ReadOnly {
		return nil
	}
	e.sequencer.start(e.recovery.NextSeq - 1)
	e.archiver, err = backup.StartArchiver(backup.ArchiverOptions{
		FS: o.FS, Dir: o.Dir, Interval: o.Interval, Backlog: o.Backlog,
		Log: e.log, LogFS: e.opts.FS, LogDir: descriptor.LogDir(e.dir),
		StoreID: e.descriptor.StoreID, Epoch: e.epoch,
		Visible: e.sequencer.Visible, Clock: e.clock.durableBound, Pressed: e.diskFull, Events: e.events,
	})
	return err
}

// durableBound returns the bound of the durable line, in Unix milliseconds; 0 if there is
// none.
func (c *clock) durableBound() uint64 {
	if bound := c.bound.Load(); bound != nil {
		return max(unixMilli(*bound), 1)
	}
	return 0
}
