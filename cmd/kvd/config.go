package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show, describe and change the settings of a server",
		Long: "Check, show and describe the settings of a server, without starting it, and change\n" +
			"those of a running one.\n\n" +
			"A setting has one name, in three places: the flag --max-sync-time, the variable\n" +
			"KVD_MAX_SYNC_TIME, and max-sync-time in the file that --config or KVD_CONFIG\n" +
			"names. A flag takes precedence over a variable, and a variable over the file.\n\n" +
			"A running server reads the file again on SIGHUP. Settings that kvd config docs marks\n" +
			"as live then change; for the others the log says that they need a restart. If the\n" +
			"file has a mistake, nothing changes. kvd config set changes one of the live settings of\n" +
			"a running server without the file.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.configCheckCommand(), a.configShowCommand(), a.configDocsCommand(), a.configSetCommand())
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check settings as kvd serve would, without starting it",
		Long: "Check settings as kvd serve would, without starting it, and print ok. The exit code is\n" +
			"0 if they are valid and 64 if not. It takes the flags and variables of kvd serve, and\n" +
			"neither opens the store nor listens.",
		Example: "  kvd config check --config /etc/kvd/kvd.yaml",
		Args:    noArguments,
	}
	settings := a.serverSettings(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := settings.load(); err != nil {
			return err
		}
		if err := settings.config.Check(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.out, "ok")
		return err
	}
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print every setting with its value and where the value comes from",
		Long: "Print every setting with its value and where the value comes from: a flag, a variable, a\n" +
			"line of the configuration file, or the default. It takes the flags and variables of kvd\n" +
			"serve. The format yaml is a configuration file with all settings and their help, in\n" +
			"which those that have their default are comments.",
		Example: "  kvd config show --config /etc/kvd/kvd.yaml\n" +
			"  kvd config show -o yaml > kvd.yaml",
		Args: noArguments,
	}
	settings := a.serverSettings(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		print, ok := map[string]func(io.Writer, []*daemon.Setting) error{
			"table": printSettings, "json": printSettingsJSON, "yaml": printSettingsYAML,
		}[format]
		if !ok {
			return usagef("--output %q; want table, json or yaml", format)
		}
		if err := settings.load(); err != nil {
			return err
		}
		return print(a.out, settings.list)
	}
	return cmd
}

func (a *app) configDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Print the reference of all settings as Markdown",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			config := daemon.DefaultConfig()
			return printSettingsMarkdown(a.out, config.Settings())
		},
	}
}

func printSettings(out io.Writer, list []*daemon.Setting) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SETTING\tVALUE\tFROM")
	for _, s := range list {
		value := s.String()
		if value == "" {
			value = `""`
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, value, s.Source())
	}
	return t.Flush()
}

func printSettingsJSON(out io.Writer, list []*daemon.Setting) error {
	for _, s := range list {
		line, err := json.Marshal(struct {
			Name    string `json:"name"`
			Value   string `json:"value"`
			Default string `json:"default"`
			From    string `json:"from"`
		}{s.Name, s.String(), s.Default(), s.Source()})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// printSettingsYAML prints values in double quotes, which JSON and YAML share.
func printSettingsYAML(out io.Writer, list []*daemon.Setting) error {
	for i, s := range list {
		value, err := json.Marshal(s.String())
		if err != nil {
			return err
		}
		comment := "# "
		if s.String() != s.Default() {
			comment = ""
		}
		if i > 0 {
			comment = "\n" + comment
		}
		if _, err := fmt.Fprintf(out, "%s%s: %s # %s\n", comment, s.Name, value, s.Help); err != nil {
			return err
		}
	}
	return nil
}

func printSettingsMarkdown(out io.Writer, list []*daemon.Setting) error {
	_, err := fmt.Fprint(out, "| setting | variable | kind | default | live | meaning |\n|---|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`)
	for _, s := range list {
		if err != nil {
			return err
		}
		live := ""
		if s.Live {
			live = "yes"
		}
		_, err = fmt.Fprintf(out, "| `%s` | `%s` | %s | `%s` | %s | %s |\n", s.Name, s.Env(), cell.Replace(s.Type()), s.Default(), live, cell.Replace(s.Help))
	}
	return err
}
