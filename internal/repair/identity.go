package repair

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// identity reads STORE, or derives what it said.
func (r *repair) identity() error {
	f := r.file(descriptor.Name)
	d, err := r.readDescriptor()
	ids, idErr := r.idsOfLog()
	clock, clockErr := r.readClock()
	r.clockFile, r.clockErr = clock, clockErr
	switch {
	case idErr != nil:
		return idErr
	case errors.Is(err, kv.ErrUnsupportedVersion):
		return err
	case err == nil && r.dirs > d.Partitions:
		err = descriptor.ErrTooFew(r.dir, d.Partitions, r.dirs-1)
	case err == nil && !slices.Contains(ids, d.StoreID) && clockErr == nil && slices.Contains(ids, clock.StoreID):
		err = fmt.Errorf("it is that of store %016x; the log and CLOCK are those of store %016x", d.StoreID, clock.StoreID)
	}
	if err == nil {
		f.Action = Copied
		r.descriptor = d
		r.noteForeignLog(ids)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errMissing
	}
	f.Action = Lost
	r.damaged(f, err)
	others := ids
	if clockErr == nil { // it counts more than the log, which is not used then if it is another one
		others = append([]uint64{clock.StoreID}, ids...)
	}
	if err := r.deriveID(others); err != nil {
		return err
	}
	r.noteForeignLog(ids)
	return r.derivePartitions()
}

// noteForeignLog notes that the log, whose segments name ids, is that of another store. Two of STORE,
// CLOCK and the log outvote the third. If CLOCK does not decide, the log is not used: to believe it
// could invent every key.
func (r *repair) noteForeignLog(ids []uint64) {
	id := r.descriptor.StoreID
	i := slices.IndexFunc(ids, func(other uint64) bool { return other != id })
	if i >= 0 && !slices.Contains(ids, id) {
		r.note("The commit log is that of store %016x, and not that of store %016x: nothing of it was used. If STORE or CLOCK is the file that does not belong here, remove it and repair again.", ids[i], id)
	}
}

// readDescriptor reads STORE. A damaged format version is told from a newer one: with a
// version that this kvd knows the checksum holds.
func (r *repair) readDescriptor() (descriptor.Descriptor, error) {
	d, err := descriptor.Read(r.src, r.dir)
	if !errors.Is(err, kv.ErrUnsupportedVersion) {
		return d, err
	}
	b, readErr := vfs.ReadSmall(r.src, descriptor.Path(r.dir), maxDescriptor)
	if readErr != nil {
		return d, readErr
	}
	for v := range uint32(maxVersion) {
		if d, decodeErr := descriptor.Decode(descriptor.Name, withVersion(b, v)); decodeErr == nil {
			r.damaged(r.file(descriptor.Name), errVersion)
			return d, nil
		}
	}
	return d, believe(b, err)
}

// readClock reads CLOCK likewise.
func (r *repair) readClock() (descriptor.Clock, error) {
	b, err := vfs.ReadSmall(r.src, descriptor.ClockPath(r.dir), maxDescriptor)
	if err != nil {
		return descriptor.Clock{}, err
	}
	c, err := descriptor.DecodeClock(descriptor.ClockName, b)
	if !errors.Is(err, kv.ErrUnsupportedVersion) {
		return c, err
	}
	for v := range uint32(maxVersion) {
		if c, decodeErr := descriptor.DecodeClock(descriptor.ClockName, withVersion(b, v)); decodeErr == nil {
			r.damaged(r.file(descriptor.ClockName), errVersion)
			return c, nil
		}
	}
	return c, believe(b, err)
}

// believe returns err, which says that STORE or CLOCK is of a newer version, unless no kvd
// will ever have that version.
func believe(b []byte, err error) error {
	if binary.LittleEndian.Uint32(b[8:]) >= 1<<16 {
		return errVersion
	}
	return err
}

var errVersion = errors.New("its format version is damaged")

const (
	maxDescriptor = 1 << 10 // bounds STORE and CLOCK
	maxVersion    = 10      // this kvd knows none of STORE and CLOCK from there on
)

// withVersion returns a copy of STORE or CLOCK with another format version.
func withVersion(b []byte, version uint32) []byte {
	b = slices.Clone(b)
	binary.LittleEndian.PutUint32(b[8:], version)
	return b
}

// idsOfLog returns the store ids that segments of the log name, that of most segments first.
func (r *repair) idsOfLog() (ids []uint64, err error) {
	votes := map[uint64]int{}
	stop := errors.New("enough")
	for name := range r.files {
		if path.Dir(name) != descriptor.LogName || path.Ext(name) != logSuffix {
			continue
		}
		info, err := wal.Dump(r.src, path.Join(r.dir, name), func(wal.FrameInfo) error { return stop })
		switch {
		case errors.Is(err, kv.ErrUnsupportedVersion):
			return nil, err
		case err == nil || errors.Is(err, stop):
			votes[info.StoreID]++
		} // else its damage is found later
	}
	return slices.SortedFunc(maps.Keys(votes), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a, b))
	}), nil
}

// deriveID finds the store id without STORE: the first of those that other files name.
func (r *repair) deriveID(ids []uint64) error {
	if len(ids) > 0 {
		r.descriptor.StoreID = ids[0]
		r.note("STORE is lost: its id was taken from the commit log or CLOCK.")
		return nil
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	r.descriptor.StoreID = binary.LittleEndian.Uint64(id[:])
	r.note("STORE is lost, and no other file names its id: the new store has a new one.")
	return nil
}

// sampledKeys bounds how many keys of each partition tell the partition count.
const sampledKeys = 1000

// place is the hash of a key and the partition that it was found in.
type place struct {
	hash      uint64
	partition int
}

// derivePartitions finds the partition count without STORE.
func (r *repair) derivePartitions() error {
	if n := r.o.Partitions; n > 0 {
		r.descriptor.Partitions = n
		if n < r.dirs {
			return fmt.Errorf("%w: %d partitions were asked for, but there is a directory of partition %d", kv.ErrInvalidArgument, n, r.dirs-1)
		}
		return nil
	}
	places, err := r.sample()
	if err != nil {
		return err
	}
	var fits []int
	for n := max(r.dirs, 1); n <= descriptor.MaxPartitions; n++ {
		if !slices.ContainsFunc(places, func(p place) bool { return keyhash.Partition(p.hash, n) != p.partition }) {
			fits = append(fits, n)
		}
	}
	if len(fits) > 0 {
		n := likely(fits, places)
		r.descriptor.Partitions = n
		r.note("STORE is lost: %d partitions is the smallest likely number, from the %d directories on, under which each of %d sampled keys is in its partition.",
			n, r.dirs, len(places))
		return nil
	}
	return fmt.Errorf("%w: STORE is lost, and under no partition count are the keys where they were found; give the count with --partitions", kv.ErrInvalidArgument)
}

// likely returns the smallest of the partition counts that fit, in order, but for those that are a
// million times less likely than the largest: if only the first of four partitions is left, one
// partition fits too, but then no key is in the upper three quarters of the hashes.
func likely(fits []int, places []place) int {
	distinct := map[uint64]bool{}
	for _, p := range places {
		distinct[p.hash] = true
	}
	largest := float64(fits[len(fits)-1])
	i := slices.IndexFunc(fits, func(n int) bool {
		return float64(len(distinct))*math.Log(largest/float64(n)) <= math.Log(1e6)
	})
	return fits[i]
}

// sample returns the places of some keys of each partition.
func (r *repair) sample() (places []place, err error) {
	enough := errors.New("enough")
	count := map[int]int{}
	add := func(partition int, key []byte) error {
		if count[partition]++; count[partition] > sampledKeys {
			return enough
		}
		places = append(places, place{keyhash.Sum(key), partition})
		return nil
	}
	for name := range r.files {
		id, ok := descriptor.ParsePartition(path.Dir(name))
		kind, num := manifest.ParseName(path.Base(name))
		if !ok || kind != manifest.FileTable || count[id] > sampledKeys {
			continue
		}
		f, err := r.src.Open(path.Join(r.dir, name))
		if err != nil {
			return nil, err
		}
		_, err = sstable.Salvage(r.ctx, f, kv.FileID{Partition: uint32(id), Num: num}, func(e *kv.Entry) error {
			if e.Kind == kv.KindRangeDelete {
				return nil // it is in all partitions
			}
			return add(id, e.Key)
		})
		if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, enough) {
			return nil, err
		}
	}
	_, err = wal.Salvage(r.src, descriptor.LogDir(r.dir), r.descriptor.StoreID, func(rec wal.Record) error {
		return record.Decode(rec.Payload, func(op *record.Op) error {
			if op.Kind == kv.KindRangeDelete {
				return nil
			}
			if err := add(op.Partition, op.Key); !errors.Is(err, enough) {
				return err
			}
			return nil
		})
	})
	return places, err
}

// clock copies CLOCK.
func (r *repair) clock() error {
	f := r.files[descriptor.ClockName]
	if f == nil {
		return nil
	}
	err := r.clockErr
	if err == nil && r.clockFile.StoreID != r.descriptor.StoreID {
		err = fmt.Errorf("it is that of store %016x", r.clockFile.StoreID)
	}
	switch {
	case err == nil:
		f.Action = Copied
		return vfs.WriteAtomic(r.out.fsys, descriptor.ClockPath(r.out.dir), r.clockFile.Encode())
	case errors.Is(err, kv.ErrUnsupportedVersion):
		return err
	}
	f.Action = Lost
	r.damaged(f, err)
	r.note("CLOCK is lost: the new store begins with the time of this machine. If that is behind the store's time, keys that had expired are back until it has caught up.")
	return nil
}
