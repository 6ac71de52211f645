package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
)

func (a *app) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this binary was built from",
		Args:  noArguments,
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	cmd.RunE = func(*cobra.Command, []string) error {
		b := daemon.Build()
		switch format {
		case "text":
			_, err := fmt.Fprintf(a.out, "kvd %s (%s, %s)\n", b.Version, b.Commit, b.Go)
			return err
		case "json":
			return json.NewEncoder(a.out).Encode(map[string]string{"version": b.Version, "commit": b.Commit, "go": b.Go})
		}
		return usagef("--output %q; want text or json", format)
	}
	return cmd
}
