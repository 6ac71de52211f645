package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	pb "go.etcd.io/raft/v3/raftpb"
)

var errMalformed = errors.New("malformed payload")

// maxVoters bounds each list of a configuration.
const maxVoters = 1 << 10

func appendHardState(b []byte, h *pb.HardState) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, h.GetTerm())
	b = le.AppendUint64(b, h.GetVote())
	return le.AppendUint64(b, h.GetCommit())
}

// decoder reads a payload. After the first error it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.rest)) {
		d.err = errMalformed
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// end returns the error, also if bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%w: %d bytes too many", errMalformed, len(d.rest))
	}
	return d.err
}

func decodeHardState(b []byte) (*pb.HardState, error) {
	d := decoder{rest: b}
	term, vote, commit := d.u64(), d.u64(), d.u64()
	return &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}, d.end()
}

// mark is a snapshot mark: the state after the entry of that index is kept elsewhere.
type mark struct {
	installed   bool // the log is empty after it
	index, term uint64
	conf        *pb.ConfState
}

func (m *mark) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, oneIf(m.installed))
	b = le.AppendUint64(b, m.index)
	b = le.AppendUint64(b, m.term)
	for _, ids := range [][]uint64{m.conf.GetVoters(), m.conf.GetLearners(), m.conf.GetVotersOutgoing(), m.conf.GetLearnersNext()} {
		b = le.AppendUint32(b, uint32(len(ids)))
		for _, id := range ids {
			b = le.AppendUint64(b, id)
		}
	}
	return append(b, oneIf(m.conf.GetAutoLeave()))
}

func oneIf(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func (d *decoder) flag() bool {
	b := d.u8()
	if b > 1 {
		d.err = errMalformed
	}
	return b == 1
}

func decodeMark(b []byte) (mark, error) {
	d := decoder{rest: b}
	m := mark{installed: d.flag(), index: d.u64(), term: d.u64(), conf: &pb.ConfState{}}
	for _, ids := range []*[]uint64{&m.conf.Voters, &m.conf.Learners, &m.conf.VotersOutgoing, &m.conf.LearnersNext} {
		n := d.u32()
		if n > maxVoters {
			d.err = errMalformed
		}
		for i := uint32(0); i < n && d.err == nil; i++ {
			*ids = append(*ids, d.u64())
		}
	}
	leave := d.flag()
	m.conf.AutoLeave = &leave
	return m, d.end()
}

func appendCompaction(b []byte, index, term uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, index), term)
}

func decodeCompaction(b []byte) (index, term uint64, err error) {
	d := decoder{rest: b}
	index, term = d.u64(), d.u64()
	return index, term, d.end()
}

func appendEntry(b []byte, e *pb.Entry) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.GetData())))
	return append(b, e.GetData()...)
}

// decodeEntries calls fn for every entry of a payload, in order. The data is borrowed.
func decodeEntries(b []byte, fn func(index, term uint64, kind pb.EntryType, data []byte)) error {
	d := decoder{rest: b}
	index, last := d.u64(), uint64(0)
	if d.err == nil && (index == 0 || index > math.MaxUint64/2 || len(d.rest) == 0) {
		return fmt.Errorf("%w: entries from index %d on", errMalformed, index)
	}
	for ; d.err == nil && len(d.rest) > 0; index++ {
		term, kind := d.u64(), pb.EntryType(d.u8())
		data := d.take(uint64(d.u32()))
		if d.err != nil {
			break
		}
		if _, known := pb.EntryType_name[int32(kind)]; !known || term == 0 || term < last {
			return fmt.Errorf("%w: entry %d has type %d and term %d after %d", errMalformed, index, kind, term, last)
		}
		last = term
		fn(index, term, kind, data)
	}
	return d.err
}
