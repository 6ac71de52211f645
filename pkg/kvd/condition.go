package kvd

import (
	"bytes"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// holds evaluates a condition as the server does.
func holds(c *backend.Condition, l *Lookup) bool {
	switch c.Kind {
	case backend.MustExist:
		return l.Found
	case backend.MustNotExist:
		return !l.Found
	case backend.VersionEquals:
		return l.Found && l.Version == c.Version
	case backend.ValueEquals:
		return l.Found && bytes.Equal(l.Value, c.Value)
	}
	return true
}
