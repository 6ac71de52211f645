package partition_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// parseOp reads key=value, key=value@expiry, or start..end, which deletes a range.
func parseOp(arg string) kv.Op {
	if start, end, ok := strings.Cut(arg, ".."); ok {
		return kv.Op{Kind: kv.KindRangeDelete, Key: []byte(start), Value: []byte(end)}
	}
	key, value, _ := strings.Cut(arg, "=")
	value, expiry, _ := strings.Cut(value, "@")
	op := kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}
	op.Expiry, _ = strconv.ParseUint(expiry, 10, 64)
	return op
}

// parseRequestID reads #n or #n>v: see write.
func parseRequestID(arg string) kv.RequestID {
	name, known, retried := strings.Cut(arg[1:], ">")
	n, _ := strconv.ParseUint(name, 10, 64)
	v, _ := strconv.ParseUint(known, 10, 64)
	return kv.RequestID{ClientID: 1, Sequence: n, Retried: retried, KnownVersion: kv.SeqNum(v)}
}

func again(deduplicated bool) string {
	if deduplicated {
		return " (as before)"
	}
	return ""
}

func (s *script) setNow(args []string) error {
	now, err := strconv.ParseUint(args[0], 10, 64)
	s.world.SetNow(now)
	return err
}

// stall makes the disk stand still, or go on: what is appended meanwhile is in the
// log and in no memtable.
func (s *script) stall(begin bool) {
	s.world.Stall(begin)
	s.c.Wake()
}

// propose takes: at=version, read=key, scan=start..end, #name, and after "then"
// what to write. While the disk stands still it does not wait for the outcome.
func (s *script) propose(out *strings.Builder, args []string) error {
	p := commit.Proposal{Durability: kv.DurabilitySync, Settled: func() {}}
	share := commit.Share{Coordinator: s.c}
	then := false
	for _, arg := range args {
		what, value, _ := strings.Cut(arg, "=")
		switch {
		case then:
			share.Ops = append(share.Ops, parseOp(arg))
		case arg == "then":
			then = true
		case strings.HasPrefix(arg, "#"):
			p.RequestID = parseRequestID(arg)
		case what == "at":
			at, _ := strconv.ParseUint(value, 10, 64)
			share.Reads.At = kv.SeqNum(at)
		case what == "read":
			share.Reads.Keys = append(share.Reads.Keys, partition.ReadKey{Key: []byte(value), Hash: keyhash.Sum([]byte(value))})
		case what == "scan":
			start, end, _ := strings.Cut(value, "..")
			share.Reads.Ranges = append(share.Reads.Ranges, kv.Range{Start: []byte(start), End: []byte(end)})
		default:
			return fmt.Errorf("unknown argument %q", arg)
		}
	}
	if p.RequestID.Named() {
		p.RequestID.Content = keyhash.Content(share.Ops)
	}
	p.Shares = []commit.Share{share}
	c, err := commit.Propose(&p)
	if err == partition.ErrStale {
		out.WriteString("stale, refreshed\n")
		if err = s.p.Refresh(&p.Shares[0].Reads); err == nil {
			c, err = commit.Propose(&p)
		}
	}
	if err != nil {
		return err
	}
	s.commits = append(s.commits, c)
	if s.world.Stalled() {
		out.WriteString("in line\n")
		return nil
	}
	s.outcome(out)
	return nil
}

// outcome waits for all that was proposed.
func (s *script) outcome(out *strings.Builder) {
	for _, c := range s.commits {
		<-c.Done()
		version, err := c.Result()
		if err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
			continue
		}
		fmt.Fprintf(out, "version %d%s\n", version, again(c.Deduplicated()))
	}
	s.commits = nil
}
