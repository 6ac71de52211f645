package service

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
)

// ScanRequest asks for the items of a range.
type ScanRequest struct {
	Range             kv.Range
	KeysOnly, Reverse bool
	Limit             uint64 // 0: none
	// AtVersion is that of a snapshot, and Epoch the snapshot's; 0: the newest, and any.
	AtVersion, Epoch uint64
	Fresh            kv.Freshness
	// PageToken, unless empty, is where an earlier scan of the range ended.
	PageToken string
}

// Scan begins a scan within the Budget of the call. The caller closes the Scanner.
func (s *Server) Scan(ctx context.Context, c *Call, r *ScanRequest) (Scanner, error) {
	if err := s.checkRange(r.Range); err != nil {
		return nil, err
	}
	if err := s.mayReadRange(&c.Caller, r.Range); err != nil {
		return nil, err
	}
	at, err := s.ReadVersion(r.AtVersion, r.Epoch)
	if err != nil {
		return nil, err
	}
	rest := r.Range
	if r.PageToken != "" {
		if rest, err = decodePageToken(r.Range, r.Reverse, r.PageToken, s.limits); err != nil {
			return nil, err
		}
	}
	return s.store.Scan(ctx, rest, kv.ScanOptions{KeysOnly: r.KeysOnly, Limit: r.Limit, Reverse: r.Reverse, At: at, Fresh: r.Fresh, Budget: &c.Budget})
}

// Token returns the page token for what follows a key.
func (r *ScanRequest) Token(last []byte) string { return encodePageToken(r.Range, r.Reverse, last) }
