package service

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
)

// Lookup performs independent reads of the newest state that CheckKey has passed. It waits for admission. Values
// beyond the Budget of the reads are left out: those reads fail with kv.ErrBudgetSpent. An
// error means that none was performed; that of one read is in it.
//
// all has those reads, and others of the request that LookupCached has answered: if the call has
// waited long, its client is judged by all keys that it gets an answer to. The memory of reads
// itself is used, and does not have them all afterwards.
func (s *Server) Lookup(ctx context.Context, c *Call, reads []*kv.Lookup, all []kv.Lookup) error {
	reads[0].Stages = c.enter()
	err := s.store.Lookup(ctx, reads)
	c.leave()
	if err != nil {
		return err
	}
	waited, err := s.recheck(c)
	if !waited || err != nil {
		return err
	}
	for i := range all {
		s.rejudge(c, &all[i])
	}
	return nil
}

// LookupCached is Lookup for those reads whose answers are in memory. It does not wait,
// and returns the other reads, in the memory of reads.
func (s *Server) LookupCached(c *Call, reads []*kv.Lookup) (left []*kv.Lookup, err error) {
	reads[0].Stages = c.enter()
	left, err = s.store.LookupCached(reads)
	c.leave()
	return left, err
}

// LookupAt is Lookup at a version for all reads, which it returns; 0 is the newest.
func (s *Server) LookupAt(ctx context.Context, c *Call, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	if stages := c.enter(); len(reads) > 0 {
		reads[0].Stages = stages
	}
	at, err := s.store.LookupAt(ctx, reads, at)
	c.leave()
	if err == nil {
		err = s.recheckReads(c, reads)
	}
	return at, err
}

// cachedBytes bounds the value that LookupCachedAt copies. Guessed: copying it takes less time than
// asking for it would.
const cachedBytes = 16 << 10

// LookupCachedAt performs one read at a version if memory has the answer, its value is small, and
// the caller may have it. Otherwise it reports false, and the caller reads it another way. It does
// not wait.
func (s *Server) LookupCachedAt(c *Call, l *kv.Lookup, at kv.SeqNum) (answered bool) {
	if s.CheckKey(&c.Caller, l.Key) != nil {
		return false // the other read says so
	}
	c.Budget.ResetExact(cachedBytes)
	l.Budget, l.Stages = &c.Budget, c.enter()
	reads := []*kv.Lookup{l}
	_, answered, err := s.store.LookupCachedAt(reads, at)
	c.leave()
	if answered && err == nil {
		err = s.recheckReads(c, reads) // the call may have waited for the version
	}
	return answered && err == nil && l.Err == nil
}

// Get performs one read, whatever the size of its value: it waits for memory. A key that
// is absent is an error.
func (s *Server) Get(ctx context.Context, c *Call, l *kv.Lookup, at kv.SeqNum) error {
	if err := s.CheckKey(&c.Caller, l.Key); err != nil {
		return err
	}
	l.Budget, l.Stages = &c.Budget, c.enter()
	err := s.readWithin(ctx, &c.Budget, s.limits.ValueBytes, func() error {
		if at == 0 {
			return s.store.Lookup(ctx, []*kv.Lookup{l})
		}
		_, err := s.store.LookupAt(ctx, []*kv.Lookup{l}, at)
		return err
	})
	c.leave()
	if err == nil && l.Err != nil {
		err = s.Unread(c, 1)
	}
	if err == nil {
		err = s.recheckReads(c, []*kv.Lookup{l})
	}
	switch {
	case err != nil:
		return err
	case l.Err != nil:
		return l.Err
	case !l.Found:
		return KeyNotFound(l.ReadVersion)
	}
	return nil
}

// GetMany performs reads at one version, which it returns, and waits for memory. What they
// bring is bounded, so that what can be written as one batch can be read as one. The error
// of one read is in it.
func (s *Server) GetMany(ctx context.Context, c *Call, reads []*kv.Lookup, at kv.SeqNum) (version kv.SeqNum, err error) {
	if err := s.CheckKeys(len(reads)); err != nil {
		return 0, err
	}
	for i, l := range reads {
		if err := s.CheckKey(&c.Caller, l.Key); err != nil {
			return 0, inPart(err, "key %d", i)
		}
		l.Budget = &c.Budget
	}
	if stages := c.enter(); len(reads) > 0 {
		reads[0].Stages = stages
	}
	c.Budget.Meter(nil) // the values count together, once they are read
	limit := max(s.limits.BatchBytes, s.limits.ValueBytes)
	err = s.readWithin(ctx, &c.Budget, limit, func() (err error) {
		version, err = s.store.LookupAt(ctx, reads, at)
		return err
	})
	c.leave()
	if err != nil {
		return 0, err
	}
	if c.Budget.Spent() {
		return 0, TooLarge("the answer has more than %d bytes; ask for fewer keys", limit)
	}
	if err := s.recheckReads(c, reads); err != nil {
		return 0, err
	}
	return version, s.countTogether(c, reads)
}

// countTogether takes the values of reads from the quota of the client, all or none.
func (s *Server) countTogether(c *Call, reads []*kv.Lookup) error {
	c.metered()
	bytes := 0
	for _, l := range reads {
		bytes += len(l.Value)
	}
	if c.Budget.Count(int64(bytes)) {
		return nil
	}
	return s.Unread(c, len(reads))
}

// CheckKeys checks the number of keys of one request, which a protocol does before it
// decodes them.
func (s *Server) CheckKeys(n int) error {
	if n > s.limits.BatchOps {
		return TooLarge("%d keys, limit is %d", n, s.limits.BatchOps)
	}
	return nil
}

// Write performs independent writes that CheckWrite has passed. It waits for admission. An
// error means that none was performed; that of one write is in it. What the key held
// before is bounded by the Budget, as in Lookup.
func (s *Server) Write(ctx context.Context, c *Call, writes []*kv.Write) error {
	if err := s.recheckWrites(c, writes); err != nil {
		return err
	}
	writes[0].Stages = c.enter()
	err := s.store.Write(ctx, writes)
	c.leave()
	return err
}

// WriteOne performs one write, whatever the size of what the key held before: it waits for
// memory for that.
func (s *Server) WriteOne(ctx context.Context, c *Call, w *kv.Write) error {
	if w.Previous != nil {
		w.Previous.Budget = &c.Budget
	}
	w.Stages = c.enter()
	err := s.readWithin(ctx, &c.Budget, s.limits.ValueBytes, func() error {
		if err := s.recheckWrites(c, []*kv.Write{w}); err != nil {
			return err
		}
		return s.store.Write(ctx, []*kv.Write{w})
	})
	c.leave()
	if err == nil && w.Err != nil {
		err = s.Unread(c, 1)
	}
	if err != nil {
		return err
	}
	return w.Err
}

// HadPrevious reports whether a write returns what the key held before. One that had been
// applied earlier is not applied again, and what it found then is not known.
func HadPrevious(w *kv.Write) bool { return w.Previous != nil && w.Previous.Found && !w.Deduplicated }
