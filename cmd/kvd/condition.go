package main

import (
	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// condition holds the flags of a conditional write.
type condition struct {
	cmd             *cobra.Command
	absent, present bool
	version         uint64
	value           string
}

const (
	flagIfAbsent  = "if-absent"
	flagIfPresent = "if-present"
	flagIfVersion = "if-version"
	flagIfValue   = "if-value"
)

// flags adds to cmd the flags for conditions on what the key holds.
func (c *condition) flags(cmd *cobra.Command) {
	c.cmd = cmd
	cmd.Flags().Uint64Var(&c.version, flagIfVersion, 0, "only if the key was last written at this version; 0: only if it is absent")
	cmd.Flags().StringVar(&c.value, flagIfValue, "", "only if the key has this value")
	cmd.MarkFlagsMutuallyExclusive(flagIfVersion, flagIfValue)
}

// presenceFlags adds flags, and those for conditions on presence.
func (c *condition) presenceFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.absent, flagIfAbsent, false, "only if the key is absent")
	cmd.Flags().BoolVar(&c.present, flagIfPresent, false, "only if the key is present")
	cmd.MarkFlagsMutuallyExclusive(flagIfAbsent, flagIfPresent, flagIfVersion, flagIfValue)
}

// options returns the condition that the flags ask for, if any.
func (c *condition) options(enc *encoding) ([]kvd.WriteOption, error) {
	switch {
	case c.absent:
		return []kvd.WriteOption{kvd.IfAbsent()}, nil
	case c.present:
		return []kvd.WriteOption{kvd.IfPresent()}, nil
	case c.cmd.Flags().Changed(flagIfVersion):
		return []kvd.WriteOption{kvd.IfVersion(c.version)}, nil
	case c.cmd.Flags().Changed(flagIfValue):
		value, err := enc.decode("value", c.value)
		return []kvd.WriteOption{kvd.IfValue(value)}, err
	}
	return nil, nil
}
