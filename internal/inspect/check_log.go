package inspect

import (
	"errors"
	"fmt"
	"path"
	"slices"

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
				f.notChecked("its checksums cover the id in STORE")
			}
		}
	}
	defer func() { c.advance(bytes) }()
	if member, err := c.replicatedLog(); member || err != nil || !c.haveStore {
		return err
	}
	foreign := false
	report, err := wal.Verify(c.fsys, descriptor.LogDir(c.dir), c.storeID, func(r wal.Record) error {
		err := c.record(r)
		if errors.Is(err, kv.ErrCorrupt) {
			foreign, err = true, nil // damagedLog says where
		}
		return err
	})
	c.report.Records = report.Records
	c.report.LastSeq = max(c.report.LastSeq, report.LastSeq)
	if err == nil {
		err = report.Problem
	}
	if err != nil || foreign {
		whole := descriptor.LogName
		if last := len(report.Files) - 1; last >= 0 {
			whole = c.inside(report.Files[last].Name) // it is there, and cannot be read
		}
		return c.damagedLog(err, whole)
	}
	for _, seg := range report.Files {
		if f := c.files[c.inside(seg.Name)]; f != nil && !seg.Live {
			f.Note = "holds nothing that counts; the next open removes it"
		}
	}
	if report.DroppedBytes > 0 && len(report.Files) > 0 {
		c.noteTail(&report)
	}
	return c.checkEnd(report.NextSeq)
}

// damagedLog reports each damaged place of a log that recovery refuses with an error, or that has
// records which are none of this store. Recovery ends with the first of them. An error that names no
// segment is recorded in the entry of the file whole.
func (c *checker) damagedLog(refused error, whole string) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	found := foundPlaces{}
	damaged, err := wal.Damages(c.fsys, descriptor.LogDir(c.dir), c.storeID, c.record, func(name string, err error) {
		found.add(c.inside(name), err)
	})
	if err != nil {
		return c.foundInLog(&File{Path: descriptor.LogName, Kind: KindLog}, err)
	}
	found.addOther(refused, whole, c.inside)
	c.report.Records = damaged.Records
	c.report.LastSeq = max(c.report.LastSeq, damaged.LastSeq)
	if err := found.tell(c); err != nil || damaged.EndLost || damaged.NextSeq == 0 {
		return err
	}
	return c.checkEnd(damaged.NextSeq)
}

// checkEnd checks that the log does not end before the tables do. next is above every number that
// it gave out.
func (c *checker) checkEnd(next kv.SeqNum) error {
	if c.flushedUpTo < next {
		return nil
	}
	return c.foundInLog(&File{Path: descriptor.LogName, Kind: KindLog}, kv.Corruptf(descriptor.LogDir(c.dir), -1,
		"the log continues at number %d, but tables hold everything up to %d: newer segments are missing", next, c.flushedUpTo))
}

// maxLogErrors bounds the errors reported for one segment, as verify.Table does for a table.
const maxLogErrors = 64

// foundPlaces are the damaged places of a log, by the file in the directory of the store.
type foundPlaces map[string]*placesOfFile

// placesOfFile are the errors of one file, and how many more there are.
type placesOfFile struct {
	errs []error
	more int
}

func (f foundPlaces) add(name string, err error) {
	at := f[name]
	if at == nil {
		at = new(placesOfFile)
		f[name] = at
	}
	if len(at.errs) < maxLogErrors {
		at.errs = append(at.errs, err)
	} else {
		at.more++
	}
}

// addOther adds an error that the log was refused with, unless it is of a place that is known.
func (f foundPlaces) addOther(err error, whole string, inside func(string) string) {
	damage, ok := errors.AsType[*kv.CorruptionError](err)
	switch {
	case err == nil:
	case ok:
		name := inside(damage.File)
		if name == descriptor.LogName && len(f) == 0 {
			name = whole
		}
		if at := f[name]; at == nil || !slices.ContainsFunc(at.errs, func(err error) bool {
			known, ok := errors.AsType[*kv.CorruptionError](err)
			return ok && (known.Offset == damage.Offset || damage.Offset < 0)
		}) {
			f.add(name, err)
		}
	case len(f) == 0: // otherwise the pass over the segments met the error that a read returned, too
		f.add(descriptor.LogName, err)
	}
}

// tell records the places in the entries of their files.
func (f foundPlaces) tell(c *checker) error {
	for name, at := range f {
		if at.more > 0 {
			at.errs = append(at.errs, fmt.Errorf("and %d more damaged places", at.more))
		}
		if err := c.foundInLog(c.file(name, KindLog), errors.Join(at.errs...)); err != nil {
			return err
		}
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
				f.notChecked("its checksums cover the ids in NODE; its node checks it when it starts")
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
	found := foundPlaces{}
	for _, err := range flatten(err) {
		name := last.Path
		if damage, ok := errors.AsType[*kv.CorruptionError](err); ok {
			name = c.inside(damage.File)
		}
		found.add(name, err)
	}
	return true, found.tell(c)
}

// flatten returns the errors that errors.Join has joined.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	return joined.Unwrap()
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
