package service

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
)

// maxSettingBytes bounds the name and the value of a setting. Guessed: more than any has.
const maxSettingBytes = 1024

// SetSetting changes a setting of the process while it runs, by Options.SetSetting, and
// returns its values before and after. The audit log records both values, and the
// administrator that changed it, which is nil on a server without authentication.
func (s *Server) SetSetting(admin *auth.Identity, peer, name, value string) (before, after string, err error) {
	if s.options.SetSetting == nil {
		return "", "", Invalidf("this server has no settings that change while it runs")
	}
	if len(name)+len(value) > maxSettingBytes {
		return "", "", Invalidf("name and value of the setting have %d bytes, want at most %d", len(name)+len(value), maxSettingBytes)
	}
	identity := ""
	if admin != nil {
		identity = admin.Name
	}
	if before, after, err = s.options.SetSetting(cmp.Or(identity, peer), name, value); err != nil {
		return "", "", Invalidf("%w", err)
	}
	s.options.Audit(audit.Event{
		Kind: audit.Admin, Identity: identity, Peer: peer,
		Method: "SetSetting", Reason: fmt.Sprintf("%s from %s to %s", name, before, after),
	})
	return before, after, nil
}

// MaxDeadline returns the longest deadline that a call may ask for now.
func (s *Server) MaxDeadline() time.Duration { return time.Duration(s.maxDeadline.Load()) }

// SetMaxDeadline changes Options.MaxDeadline of a running server, for calls that begin from
// now on.
func (s *Server) SetMaxDeadline(d time.Duration) { s.maxDeadline.Store(int64(d)) }
