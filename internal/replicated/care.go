package replicated

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// A leader hands the leadership over if its log has been slow for slowFor, or its disk is nearly
// full. It looks every careEvery, and does so no more than once in careAgain: another node may
// be no better. Guessed, but for slowFor, after which a disk hardly recovers by itself soon.
const (
	careEvery = time.Second
	careAgain = time.Minute
	careWait  = 3 * time.Second
	slowFor   = 10 * time.Second

	// slowPower makes a write with its sync slow: longer than 2^slowPower microseconds, which is half
	// of the 10 ticks after which the other nodes elect another leader.
	slowPower = 19
)

// HandOver is an attempt of a leader to hand the leadership over because of its disk.
type HandOver struct {
	Reason string // "slow_disk" or "full_disk"
	Why    string
	Leader uint64 // that took over; 0: see Err
	Err    error
}

// HandOvers counts the times that this node handed the leadership over because of its disk, by
// the reasons of HandOver.
func (l *Log) HandOvers() map[string]uint64 {
	return map[string]uint64{slowDisk: l.handedOver[0].Load(), fullDisk: l.handedOver[1].Load()}
}

const (
	slowDisk = "slow_disk"
	fullDisk = "full_disk"
)

// Full implements engine.ReplicatedLog.
func (l *Log) Full(why string) { l.full.Store(&why) }

// care hands the leadership over when this node should not lead, until ctx ends.
func (l *Log) care(ctx context.Context) {
	ticker := time.NewTicker(careEvery)
	defer ticker.Stop()
	var slow slowness
	var again time.Time
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		late := slow.note(now, l.file.Stats().SyncMicros)
		h := HandOver{}
		if full := l.full.Load(); full != nil && *full != "" {
			h.Reason, h.Why = fullDisk, *full
		} else if late >= slowFor {
			h.Reason, h.Why = slowDisk, "for "+late.Round(time.Second).String()+" each write and sync of its log has taken over half of the time after which others elect a leader"
		}
		if h.Reason == "" || now.Before(again) || !l.Status().Leading {
			continue
		}
		wait, cancel := context.WithTimeout(ctx, careWait)
		h.Leader, h.Err = l.HandOver(wait)
		if cancel(); errors.Is(h.Err, context.DeadlineExceeded) {
			h.Err = fmt.Errorf("no other node took over within %v: %w", careWait, h.Err)
		}
		if h.Leader == 0 && h.Err == nil {
			continue // it leads no more
		}
		again = now.Add(careAgain)
		if h.Err == nil {
			l.handedOver[map[string]int{slowDisk: 0, fullDisk: 1}[h.Reason]].Add(1)
		}
		if l.config.HandedOver != nil {
			l.config.HandedOver(h)
		}
	}
}

// slowness knows for how long writes of the log have been slow.
type slowness struct {
	quick, slow uint64    // writes with a sync until the last call
	since       time.Time // of the first slow one after the last quick one; zero: there was none
}

// note takes the times of all writes with a sync so far, in microseconds. It returns for how long
// all of them have been slow, 0 if there was none since the last call.
func (s *slowness) note(now time.Time, syncs histogram.PowerCounts) time.Duration {
	quick, all := uint64(0), syncs.Count()
	for _, n := range syncs.Buckets[:slowPower+1] {
		quick += n
	}
	slower := all-quick > s.slow
	if quick > s.quick {
		s.since = time.Time{}
	}
	s.slow, s.quick = all-quick, quick
	switch {
	case !slower:
		return 0
	case s.since.IsZero():
		s.since = now
	}
	return now.Sub(s.since)
}
