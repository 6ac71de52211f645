package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

// dataOptions are the flags for keys and values.
type dataOptions struct {
	distribution string
	theta        float64
	sizes        workload.ValueSizes
	compressible float64
	keyBytes     int
}

// register adds the flags. A Distribution of "" leaves out those for it, because the
// experiment compares distributions itself, and calls registerTheta, or has none.
func (o *dataOptions) register(c *cobra.Command, d workload.Distribution, keyBytes int, values workload.ValueSizes) {
	o.sizes, o.theta = values, workload.DefaultTheta
	f := c.Flags()
	if d != "" {
		f.StringVar(&o.distribution, "distribution", string(d), "of keys: uniform, sequential, zipfian, scrambled-zipfian, latest or hotspot")
		o.registerTheta(c)
	}
	f.Var(&o.sizes, "value-size", "bytes of a value; 100..4000 for any of these, or 100:90,4000:10 for sizes with weights")
	f.Float64Var(&o.compressible, "compressible", 0, "share of a value that repeats, from 0 to 1")
	f.IntVar(&o.keyBytes, "key-size", keyBytes, "bytes of a key")
}

func (o *dataOptions) registerTheta(c *cobra.Command) {
	c.Flags().Float64Var(&o.theta, "theta", workload.DefaultTheta, "skew of the distributions zipfian, scrambled-zipfian and latest; refused with others")
}

// idleTheta refuses --theta unless one of these distributions has a skew.
func idleTheta(all ...workload.Distribution) idleFlags {
	return idleFlags{
		!slices.ContainsFunc(all, workload.Distribution.Skewed), []string{"theta"},
		"on keys without a Zipfian distribution: leave it out, or choose zipfian, scrambled-zipfian or latest",
	}
}

// errNoTheta: in a workload.Config a skew of 0 is the default.
var errNoTheta = errors.New("--theta 0: that is no skew; use the distribution uniform")

// apply sets what the flags say. Validate of the Config finds what is wrong with it.
func (o *dataOptions) apply(config *workload.Config) (err error) {
	switch {
	case o.theta == 0:
		return errNoTheta
	case o.keyBytes == 0:
		return errors.New("--key-size 0: a key has at least one byte")
	}
	if o.distribution != "" {
		config.Distribution, err = workload.ParseDistribution(o.distribution)
	}
	config.Theta, config.Compressible, config.KeyBytes = o.theta, o.compressible, o.keyBytes
	if least, most := o.sizes.Bounds(); least < most {
		config.Sizes, config.ValueBytes = &o.sizes, most
	} else {
		config.ValueBytes = most
	}
	return err
}
