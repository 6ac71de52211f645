package inspect

import (
	"fmt"
	"path"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// log checks the commit log as recovery would read it, that every record is valid for
// this store, and that the log is not older than the tables.
func (c *checker) log() error {
	var bytes int64
	for name, f := range c.files {
		if path.Dir(name) == descriptor.LogName && descriptor.IsOwnSegment(name) {
			f.Kind = KindLog
			bytes += f.Bytes
			if !c.haveStore {
				f.Note = "not checked: its checksums cover the id in STORE"
			}
		}
	}
	defer func() { c.advance(bytes) }()
	if member, err := c.replicatedLog(); member || err != nil || !c.haveStore {
		return err
	}
	dir := descriptor.LogDir(c.dir)
	whole := &File{Path: descriptor.LogName, Kind: KindLog}
	report, err := wal.Verify(c.fsys, dir, c.storeID, c.record)
	if err != nil {
		return c.foundInLog(whole, err)
	}
	for _, seg := range report.Files {
		if f := c.files[c.inside(seg.Name)]; f != nil && !seg.Live {
			f.Note = "holds nothing that counts; the next open removes it"
		}
	}
	if report.DroppedBytes > 0 && len(report.Files) > 0 {
		c.noteTail(&report)
	}
	c.report.LastSeq = max(c.report.LastSeq, report.LastSeq)
	if report.Problem != nil {
		if last := len(report.Files) - 1; last >= 0 {
			// A problem that names no segment concerns the last one, which cannot be
			// read.
			whole = c.files[c.inside(report.Files[last].Name)]
		}
		return c.foundInLog(whole, report.Problem)
	}
	if c.flushedUpTo >= report.NextSeq {
		return c.foundInLog(whole, kv.Corruptf(dir, -1,
			"the log continues at number %d, but tables hold everything up to %d: newer segments are missing", report.NextSeq, c.flushedUpTo))
	}
	return nil
}

// replicatedLog reports whether the store is that of a node of a cluster, and then checks its log.
func (c *checker) replicatedLog() (member bool, err error) {
	last := &File{} // segment
	own := c.ownLog()
	for name, f := range c.files {
		if path.Dir(name) == descriptor.LogName && descriptor.IsReplicatedSegment(name) {
			f.Kind = KindLog
			c.advance(f.Bytes)
			if own && c.files[descriptor.NodeName] == nil {
				f.Note = "left by a kvd cluster init that was interrupted; the next open removes it"
				continue
			}
			if c.replicated == nil || c.node == nil {
				f.Note = "not checked: its checksums cover the ids in NODE; its node checks it when it starts"
			}
			if name > last.Path {
				last = f
			}
		}
	}
	if last.Path == "" && c.node == nil {
		return false, nil
	}
	c.report.LastSeq = max(c.report.LastSeq, c.flushedUpTo)
	if c.replicated == nil || c.node == nil {
		return true, nil
	}
	note, err := c.replicated(c.fsys, descriptor.LogDir(c.dir), c.node)
	if last.Note = note; last.Path == "" {
		last = &File{Path: descriptor.LogName, Kind: KindLog}
	}
	return true, c.foundInLog(last, err)
}

// ownLog reports whether the store has the log of a single node. That of a node of a cluster is
// noted: everything in it is in tables.
func (c *checker) ownLog() (found bool) {
	for name, f := range c.files {
		if path.Dir(name) == descriptor.LogName && descriptor.IsOwnSegment(name) {
			found = true
			if c.files[descriptor.NodeName] != nil {
				f.Note = "of the time before the store was a node of a cluster; the next start removes it"
			}
		}
	}
	return found
}

// foundInLog records an error in the entry of the segment that it names, or else in
// that of the log as a whole.
func (c *checker) foundInLog(whole *File, err error) error {
	if err := c.found(whole, err); err != nil {
		return err
	}
	if whole.Err != nil {
		c.files[whole.Path] = whole
	}
	return nil
}

func (c *checker) noteTail(report *wal.Report) {
	for i := len(report.Files) - 1; i >= 0; i-- {
		if f := c.files[c.inside(report.Files[i].Name)]; f != nil && report.Files[i].Live {
			f.Note = fmt.Sprintf("%d bytes at the end are no whole write, and were not acknowledged as synced; the next open drops them", report.DroppedBytes)
			return
		}
	}
}

// record checks one record of the log like the engine's recovery.
func (c *checker) record(r wal.Record) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	c.report.Records++
	err := record.Decode(r.Payload, func(op *record.Op) error {
		if op.Partition >= c.report.Partitions {
			return fmt.Errorf("operation for partition %d of %d", op.Partition, c.report.Partitions)
		}
		if op.Unit >= r.Units {
			return fmt.Errorf("operation of unit %d in a record of %d", op.Unit, r.Units)
		}
		return nil
	})
	if err != nil {
		return kv.Corruptf(descriptor.LogDir(c.dir), -1, "record %d: %v", r.Base, err)
	}
	return nil
}
