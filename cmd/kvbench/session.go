package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kvd-db/kvd/internal/workload"
)

// withTarget opens the report and the target that the flags describe, hands both
// out, and closes them; a store that nobody asked to keep is removed.
func withTarget(o *targetOptions, open opener, use func(workload.Target, *targetInfo, *report) error) (err error) {
	if o.addr == "" && o.data == "" {
		if o.data, err = os.MkdirTemp(".", "kvbench-data-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.data)) }()
	}
	report, err := openReport(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.Close()) }()

	target, info, err := open(o)
	if err != nil {
		return err
	}
	return errors.Join(use(target, &info, report), closeTarget(target))
}

func closeTarget(target io.Closer) error {
	if err := target.Close(); err != nil {
		return fmt.Errorf("close the target: %w", err)
	}
	return nil
}
