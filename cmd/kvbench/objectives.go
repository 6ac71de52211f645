package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/results"
)

// objectiveOptions is the flag --slo of commands whose runs must meet objectives.
type objectiveOptions struct {
	slo        string
	objectives []results.SLO // of slo
}

// register adds the flag. example names an operation of the command.
func (o *objectiveOptions) register(c *cobra.Command, example string) {
	c.Flags().StringVar(&o.slo, "slo", "", fmt.Sprintf("objectives, such as p99<5ms,%s.p99.9<20ms; if a run misses one, the exit code is 2", example))
}

// parse reads the flag of a command that measures these operations.
func (o *objectiveOptions) parse(operations []string) (err error) {
	if o.slo == "" {
		return nil
	}
	if o.objectives, err = results.ParseSLOs(o.slo, operations); err != nil {
		return fmt.Errorf("--slo: %w", err)
	}
	return nil
}

// errNotJudged: of what was not measured nothing is known.
var errNotJudged = errors.New("interrupted, so the objectives of --slo are not judged")

// mostMissed bounds how many missed objectives an error names.
const mostMissed = 10

// judge prints that all runs of the cells met the objectives; it returns an error if they
// missed any, or were interrupted. Call it if there is no other error, whose exit code it would
// change.
func (o *objectiveOptions) judge(c *cobra.Command, cells []*results.Cell) error {
	if len(o.objectives) == 0 {
		return nil
	}
	if c.Context().Err() != nil {
		return errNotJudged
	}
	if missed := results.Missed(o.objectives, cells); len(missed) > 0 {
		more := ""
		if n := len(missed) - mostMissed; n > 0 {
			missed, more = missed[:mostMissed], fmt.Sprintf("; and %d more", n)
		}
		return fmt.Errorf("%w: %s%s", errMissed, strings.Join(missed, "; "), more)
	}
	for _, s := range o.objectives {
		if _, err := fmt.Fprintf(c.OutOrStdout(), "objective    %s met\n", s); err != nil {
			return err
		}
	}
	return nil
}
