package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// withTarget opens the report and the target that the flags describe, passes both to a
// function, and closes them. It removes a store that the flags do not name.
func withTarget(c *cobra.Command, o *targetOptions, open opener, use func(workload.Target, *targetInfo, *lineReport) error) (err error) {
	if o.addr == "" && o.data == "" {
		if o.data, err = stores.make(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stores.remove(o.data)) }()
	}
	report, err := openReport(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.Close()) }()

	var target workload.Target
	var info targetInfo
	live := newLiveView(c.ErrOrStderr())
	err = loadgen.Watch("opening the store", live.progress, func() (err error) {
		target, info, err = open(o)
		return err
	})
	live.end()
	if err != nil {
		return err
	}
	if err = refuseUsed(c.Context(), target, o); err == nil {
		err = use(target, &info, report)
	}
	err = errors.Join(err, loadgen.Watch("closing the store", live.progress, func() error { return closeTarget(target) }))
	live.end()
	return err
}

func closeTarget(target io.Closer) error {
	if err := target.Close(); err != nil {
		return fmt.Errorf("close the target: %w", err)
	}
	return nil
}

// keyHolder is a target that can tell whether it holds a key.
type keyHolder interface {
	holdsKeys(ctx context.Context) (bool, error)
}

// refuseUsed returns an error if the store holds keys, unless --reuse is given: a benchmark
// would change them, and read keys that another one wrote.
func refuseUsed(ctx context.Context, target workload.Target, o *targetOptions) error {
	holder, ok := target.(keyHolder)
	if !ok || o.reuse {
		return nil
	}
	used, err := holder.holdsKeys(ctx)
	if err != nil {
		return fmt.Errorf("check whether the store is empty: %w", err)
	}
	if used {
		return fmt.Errorf("the store of %s is not empty; the benchmark would change keys there, and measure with data that it did not write: "+
			"give another store, or pass --reuse", cmp.Or(o.addr, o.data))
	}
	return nil
}
