package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
)

const envConfig = "KVD_CONFIG"

// serverSettings are the settings of a server as a command line, the environment and a
// configuration file give them.
type serverSettings struct {
	app    *app
	config daemon.Config
	list   []*daemon.Setting
	file   string // empty: none
	cmd    *cobra.Command
}

// serverSettings adds a flag for each setting of a server to cmd.
func (a *app) serverSettings(cmd *cobra.Command) *serverSettings {
	s := &serverSettings{app: a, cmd: cmd, config: daemon.DefaultConfig()}
	s.list = s.config.Settings()
	cmd.Flags().StringVar(&s.file, "config", a.getenv(envConfig), "YAML file with settings, named as the flags are [$"+envConfig+"]")
	for _, setting := range s.list {
		flag := cmd.Flags().VarPF(setting, setting.Name, "", setting.Help+" [$"+setting.Env()+"]")
		if setting.IsBoolFlag() {
			flag.NoOptDefVal = "true"
		}
	}
	return s
}

// load completes the settings after the flags are parsed: a variable sets what no flag has
// set, and the file sets what neither has.
func (s *serverSettings) load() error {
	if err := daemon.SetFromEnv(s.list, s.app.environ, append(clientEnv, envConfig)...); err != nil {
		return err
	}
	if err := s.loadFile(); err != nil {
		return err
	}
	s.config.Chosen = daemon.NonDefault(s.list)
	if s.file != "" {
		s.config.Reread = s.reread
	}
	return nil
}

// reread returns the configuration that the same flags and variables give with the file as
// it is now.
func (s *serverSettings) reread() (daemon.Config, error) {
	next := s.app.serverSettings(&cobra.Command{})
	next.file = s.file
	for i, setting := range s.list {
		if s.cmd.Flags().Changed(setting.Name) {
			if err := next.list[i].Set(setting.String()); err != nil {
				return daemon.Config{}, err
			}
		}
	}
	err := next.load()
	return next.config, err
}

func (s *serverSettings) loadFile() (err error) {
	if s.file == "" {
		return nil
	}
	f, err := os.Open(s.file)
	if err != nil {
		return fmt.Errorf("%w: configuration file: %w", daemon.ErrUsage, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return daemon.SetFromFile(s.list, s.file, f)
}
