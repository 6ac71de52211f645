package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// freshness holds the flags that say how new the state must be that a read sees.
type freshness struct {
	stale      time.Duration
	minVersion uint64
}

func (f *freshness) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.stale, "stale", 0, "in a cluster: what was acknowledged less than this ago (5s) may be missing; needs fewer messages to the node that leads")
	cmd.Flags().Uint64Var(&f.minVersion, "min-version", 0, "in a cluster: see what this version did; fails if the cluster does not have it")
}

// check returns an error if the flags make no sense.
func (f *freshness) check() error {
	if f.stale < 0 {
		return usagef("--stale %v is negative", f.stale)
	}
	return nil
}

// options are those of the read.
func (f *freshness) options() (kvd.Stale, kvd.MinVersion) {
	return kvd.Stale(f.stale), kvd.MinVersion(f.minVersion)
}
