package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
)

// Tenure is a time in which a node takes proposals without a gap. See the package comment.
// The zero Tenure is none.
type Tenure struct {
	Term uint64
	// Number counts the tenures of a Core.
	Number uint64
}

// Result says how a proposal ended.
type Result uint8

// The results. See "Outcomes" in the package comment.
const (
	Committed Result = iota + 1
	Dropped
	Uncertain
)

func (r Result) String() string {
	return [...]string{"none", "committed", "dropped", "uncertain"}[min(r, Uncertain+1)%4]
}

// Outcome is the end of a proposal.
type Outcome struct {
	ID     uint64 // as in Propose
	Result Result
	Index  uint64 // of the entry, if it is committed
}

// proposal is a record whose outcome has not been reported.
type proposal struct {
	id, term uint64
	index    uint64 // 0: its entry is only in memory yet
	dropped  bool
}

// proposals holds the proposals without an outcome, in order. Those of one tenure follow each
// other, and all that are not dropped are of one term.
type proposals struct {
	tenure Tenure // the newest one
	open   bool   // it goes on

	line   []proposal
	placed int // so many at the beginning of line have an index or are dropped
}

// Tenure returns the tenure in which records can be proposed now, and false if there is none.
func (c *Core) Tenure() (Tenure, bool) { return c.proposals.tenure, c.proposals.open }

// Propose proposes a record that its caller has numbered in a tenure. The id is the caller's
// own; Process reports its outcome once, also if the tenure is over. The record is copied. The
// caller bounds the bytes of records without an outcome: the library would drop a proposal in
// the middle of a tenure.
//
// Errors, without an outcome: kv.ErrInvalidArgument for an empty record or one above
// MaxRecordBytes; what ended the Core.
func (c *Core) Propose(t Tenure, id uint64, record []byte) error {
	p := &c.proposals
	taken := p.open && t == p.tenure
	switch {
	case c.err != nil:
		return c.err
	case len(record) == 0 || len(record) > MaxRecordBytes:
		return errRecordSize(int64(len(record)))
	}
	if taken {
		c.guard(func() error {
			// The library refuses it if a message since the last Process has ended the term.
			taken = c.node.Propose(encodeEntry(t.Term, record)) == nil
			return nil
		})
		if c.err != nil {
			return c.err
		}
		p.open = taken
	}
	p.line = append(p.line, proposal{id: id, term: t.Term, dropped: !taken})
	return nil
}

func errRecordSize(bytes int64) error {
	return fmt.Errorf("%w: a record of %d bytes, want 1 to %d", kv.ErrInvalidArgument, bytes, MaxRecordBytes)
}

// beginTenure begins a tenure if this node, which leads, has none and can. Nothing in the
// log is then without effect on the state, so no proposal of an earlier tenure is on its way.
func (c *Core) beginTenure() {
	p := &c.proposals
	if p.open || c.applied.Term != c.term || c.handing.to != 0 {
		return
	}
	c.guard(func() error {
		last, err := c.storage.LastIndex()
		if err != nil {
			return err
		}
		if last == c.applied.Index && c.node.BasicStatus().LeadTransferee == raft.None {
			p.tenure = Tenure{Term: c.term, Number: p.tenure.Number + 1}
			p.open = true
		}
		return nil
	})
}

// ofTerm reports whether all that may still be committed was proposed in that term.
func (p *proposals) ofTerm(term uint64) bool {
	for _, q := range p.line {
		if !q.dropped {
			return q.term == term
		}
	}
	return !p.open || p.tenure.Term == term
}

// place notes the indexes of the proposals among entries that are about to be written.
func (p *proposals) place(entries []*pb.Entry) {
	for _, e := range entries {
		if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		for p.placed < len(p.line) && p.line[p.placed].dropped {
			p.placed++
		}
		if p.placed < len(p.line) && p.line[p.placed].term == e.GetTerm() {
			p.line[p.placed].index = e.GetIndex()
			p.placed++
		}
	}
}

// resolve reports the outcomes that follow from a committed entry.
func (p *proposals) resolve(e *pb.Entry, applied bool, out *Output) {
	for len(p.line) > 0 {
		first := p.line[0]
		switch {
		case first.dropped:
			p.pop(Dropped, out)
		case first.index == 0 || first.index > e.GetIndex():
			return
		case first.index == e.GetIndex() && first.term == e.GetTerm() && applied:
			p.pop(Committed, out)
		default:
			p.pop(Dropped, out)
		}
	}
}

// endDropped reports the dropped proposals that none goes before.
func (p *proposals) endDropped(out *Output) {
	for len(p.line) > 0 && p.line[0].dropped {
		p.pop(Dropped, out)
	}
}

// end reports all proposals: their term has ended. What has an index may be in a log.
func (p *proposals) end(out *Output) {
	for len(p.line) > 0 {
		if p.line[0].index != 0 {
			p.pop(Uncertain, out)
		} else {
			p.pop(Dropped, out)
		}
	}
}

// pop reports the first proposal.
func (p *proposals) pop(r Result, out *Output) {
	o := Outcome{ID: p.line[0].id, Result: r}
	if r == Committed {
		o.Index = p.line[0].index
	}
	out.Outcomes = append(out.Outcomes, o)
	p.placed = max(0, p.placed-1)
	if p.line = p.line[1:]; len(p.line) == 0 {
		p.line = nil
	}
}
