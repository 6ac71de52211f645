package kvd

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// holds judges a condition as the server would.
func holds(c *frame.Condition, l *Lookup) bool {
	switch c.Kind {
	case frame.MustExist:
		return l.Found
	case frame.MustNotExist:
		return !l.Found
	case frame.VersionEquals:
		return l.Found && l.Version == c.Version
	case frame.ValueEquals:
		return l.Found && bytes.Equal(l.Value, c.Value)
	}
	return true
}

// precondition is a condition outside frames; nil if there is none.
func precondition(c *frame.Condition) *kvdpb.Precondition {
	switch c.Kind {
	case frame.MustExist:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustExist{MustExist: true}}
	case frame.MustNotExist:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustNotExist{MustNotExist: true}}
	case frame.VersionEquals:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_VersionEquals{VersionEquals: c.Version}}
	case frame.ValueEquals:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_ValueEquals{ValueEquals: c.Value}}
	}
	return nil
}
