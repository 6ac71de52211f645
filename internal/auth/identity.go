package auth

import (
	"bytes"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Identity is who a client is and what it may do. It does not change. The methods that judge
// may be called on nil, which may do nothing.
type Identity struct {
	Name        string
	TokenID     string // empty: it is known by a certificate
	Certificate string // name of the certificate; empty: it is known by a token
	Read, Write []string
	Admin       bool
	Monitor     bool // part of Admin
	Created     time.Time
	Expires     time.Time // zero: never
	Quota       Quota     // of all identities with the name together

	usage *Usage // of an identity that an Authority returned; nil: it has no quota
}

// Usage returns what the identity and others of its name use of their quota; nil: there is none.
func (i *Identity) Usage() *Usage {
	if i == nil {
		return nil
	}
	return i.usage
}

// MayRead reports whether the identity may read a key.
func (i *Identity) MayRead(key []byte) bool { return i != nil && hasPrefix(i.Read, key) }

// MayWrite reports whether the identity may write a key.
func (i *Identity) MayWrite(key []byte) bool { return i != nil && hasPrefix(i.Write, key) }

// MayReadRange reports whether the identity may read all keys from start until end; an empty
// end is that of all keys.
func (i *Identity) MayReadRange(start, end []byte) bool {
	return i != nil && hasRange(i.Read, start, end)
}

// MayWriteRange is MayReadRange for writes.
func (i *Identity) MayWriteRange(start, end []byte) bool {
	return i != nil && hasRange(i.Write, start, end)
}

// MayAdminister reports whether the identity may make administrative calls.
func (i *Identity) MayAdminister() bool { return i != nil && i.Admin }

// MayMonitor reports whether the identity may read metrics and the status of the server.
func (i *Identity) MayMonitor() bool { return i != nil && (i.Monitor || i.Admin) }

// MaySomething reports whether the identity may read or write any key.
func (i *Identity) MaySomething() bool { return i != nil && len(i.Read)+len(i.Write) > 0 }

func hasPrefix(prefixes []string, key []byte) bool {
	for _, p := range prefixes {
		if len(key) >= len(p) && string(key[:len(p)]) == p {
			return true
		}
	}
	return false
}

func hasRange(prefixes []string, start, end []byte) bool {
	for _, p := range prefixes {
		if p == "" {
			return true
		}
		if !bytes.HasPrefix(start, []byte(p)) {
			continue
		}
		// start has the prefix, so the range is within it if no key after all with the
		// prefix is before end.
		after := kv.PrefixRange([]byte(p)).End
		if len(after) == 0 || len(end) > 0 && bytes.Compare(end, after) <= 0 {
			return true
		}
	}
	return false
}
