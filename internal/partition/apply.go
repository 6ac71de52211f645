package partition

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// Record is a record of the log, as a partition applies it.
type Record struct {
	Base    kv.SeqNum // number of its first unit
	Payload []byte    // see package record; borrowed
	Hashes  []uint64  // of the keys that it writes in this partition
	Pos     wal.Pos   // its end in the log
}

// Insert puts this partition's operations of a record into the active memtable, where
// readers do not see them before [Partition.Publish]. One goroutine at a time calls it,
// with records in the order of the log.
func (p *Partition) Insert(r Record) {
	before := p.active.Bytes()
	if len(r.Hashes) > 1 {
		p.active.TouchHashes(r.Hashes) // they wait for memory together
	}
	base := r.Base
	err := record.Decode(r.Payload, func(op *record.Op) error {
		if op.Partition == p.id {
			p.insertOp(base, op)
		}
		return nil
	})
	if err != nil {
		// The payload was laid out in memory by this process.
		panic(fmt.Sprintf("partition %d: own record is malformed: %v", p.id, err))
	}
	p.activePos = r.Pos
	p.budget.Grew(p, p.active.Bytes()-before)
}

func (p *Partition) insertOp(base kv.SeqNum, op *record.Op) {
	p.entry = kv.Entry{
		Key: op.Key, Value: op.Value, Seq: base + kv.SeqNum(op.Unit), Kind: op.Kind, Expiry: op.Expiry,
	}
	p.active.Add(keyhash.Sum(op.Key), &p.entry)
	p.stats.userBytes.Add(uint64(p.entry.Size()))
	p.entry = kv.Entry{} // or it would keep the record in memory
}
