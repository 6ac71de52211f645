package transport

import (
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// precondition returns a condition as it is outside frames, nil if there is none.
func precondition(c *backend.Condition) *kvdpb.Precondition {
	if c == nil {
		return nil
	}
	switch c.Kind {
	case backend.MustExist:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustExist{MustExist: true}}
	case backend.MustNotExist:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustNotExist{MustNotExist: true}}
	case backend.VersionEquals:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_VersionEquals{VersionEquals: c.Version}}
	case backend.ValueEquals:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_ValueEquals{ValueEquals: c.Value}}
	}
	return nil
}

// frameCondition returns a condition as it is in a frame, where the kinds have the same numbers.
func frameCondition(c *backend.Condition) frame.Condition {
	if c == nil {
		return frame.Condition{}
	}
	return frame.Condition{Kind: frame.ConditionKind(c.Kind), Version: c.Version, Value: c.Value}
}

// The kinds of conditions have the same numbers: else this does not compile.
var (
	_ = [1]struct{}{}[frame.MustExist-frame.ConditionKind(backend.MustExist)]
	_ = [1]struct{}{}[frame.MustNotExist-frame.ConditionKind(backend.MustNotExist)]
	_ = [1]struct{}{}[frame.VersionEquals-frame.ConditionKind(backend.VersionEquals)]
	_ = [1]struct{}{}[frame.ValueEquals-frame.ConditionKind(backend.ValueEquals)]
)

// wireRange returns a range as it is in the protocol. It shares memory with r.
func wireRange(r backend.Range) *kvdpb.Range { return &kvdpb.Range{Start: r.Start, End: r.End} }

// wireRanges is wireRange for each range.
func wireRanges(ranges []backend.Range) (wire []*kvdpb.Range) {
	for _, r := range ranges {
		wire = append(wire, wireRange(r))
	}
	return wire
}

// wireMutations returns writes as they are in the protocol. They share memory with writes.
func wireMutations(writes []backend.Mutation) []*kvdpb.Mutation {
	messages := make([]kvdpb.Mutation, len(writes))
	wire := make([]*kvdpb.Mutation, len(writes))
	for i := range writes {
		w, m := &writes[i], &messages[i]
		switch w.Kind {
		case backend.Put:
			m.Op = &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: w.Key, Value: w.Value, TtlMs: ttlMillis(w.TTL)}}
		case backend.Delete:
			m.Op = &kvdpb.Mutation_Delete{Delete: w.Key}
		case backend.DeleteRange:
			m.Op = &kvdpb.Mutation_DeleteRange{DeleteRange: &kvdpb.Range{Start: w.Key, End: w.Value}}
		}
		m.Precondition = precondition(w.Condition)
		wire[i] = m
	}
	return wire
}

// lasting reports whether a condition of the writes, once it fails, always fails: all conditions ask
// for versions, which never come back.
func lasting(writes []backend.Mutation) bool {
	for i := range writes {
		if c := writes[i].Condition; c != nil && c.Kind != backend.VersionEquals {
			return false
		}
	}
	return true
}

// ttlMillis returns a time to live as it is in the protocol: 0 is for ever.
func ttlMillis(d time.Duration) uint64 {
	millis := uint64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		millis++ // a part of one is rounded up
	}
	return millis
}

// ttlOf is the inverse of ttlMillis.
func ttlOf(millis uint64) time.Duration {
	return time.Duration(min(millis, uint64(maxTTL/time.Millisecond))) * time.Millisecond
}

const maxTTL time.Duration = 1<<63 - 1
