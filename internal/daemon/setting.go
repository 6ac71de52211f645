package daemon

import (
	"fmt"
	"slices"
	"strings"
)

// envPrefix begins the name of every environment variable.
const envPrefix = "KVD_"

// Setting is one setting of the service. It implements pflag.Value.
type Setting struct {
	Name string // of the flag, such as max-sync-time
	Help string
	// Live: a running service takes a new value, from the configuration file on SIGHUP, or by
	// kvd config set.
	Live bool

	value  value
	preset string
	from   string // source of the value; empty: it is the default
}

// value is the field of a Config that a setting changes.
type value interface {
	Set(text string) error
	String() string
	Type() string // for the help: what to write
}

// Env returns the name of the setting's environment variable.
func (s *Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// String returns the value as text that Set takes.
func (s *Setting) String() string {
	if s.value == nil { // pflag calls String on a zero Setting
		return ""
	}
	return s.value.String()
}

// Set sets the value from the flag.
func (s *Setting) Set(text string) error { return s.set(text, "--"+s.Name) }

// Type returns the kind of value, for the help.
func (s *Setting) Type() string { return s.value.Type() }

// Default returns the value that the setting has unless something sets it.
func (s *Setting) Default() string { return s.preset }

// Source returns what has set the value: a flag, a variable, a line of the configuration
// file, or default.
func (s *Setting) Source() string {
	if s.from == "" {
		return "default"
	}
	return s.from
}

// IsBoolFlag lets a switch stand without a value.
func (s *Setting) IsBoolFlag() bool { return s.value.Type() == "bool" }

func (s *Setting) set(text, from string) error {
	if err := s.value.Set(text); err != nil {
		return err
	}
	s.from = from
	return nil
}

// SetFromEnv sets all settings that no flag has set from environment variables. environ is
// what os.Environ returns; others are variables with the prefix KVD_ that belong to other
// commands.
//
// It returns an error for an invalid value, and for an unknown variable with that prefix: a
// misspelt setting would otherwise silently have its default.
func SetFromEnv(settings []*Setting, environ []string, others ...string) error {
	byEnv := make(map[string]*Setting, len(settings))
	known := slices.Clone(others)
	for _, s := range settings {
		byEnv[s.Env()] = s
		known = append(known, s.Env())
	}
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		s := byEnv[name]
		switch {
		case !strings.HasPrefix(name, envPrefix) || slices.Contains(others, name):
		case s == nil:
			return fmt.Errorf("%w: the environment variable %s is not a setting%s", ErrUsage, name, didYouMean(name, known))
		case s.from == "":
			if err := s.set(text, name); err != nil {
				return fmt.Errorf("%w: environment variable %s=%q: %w", ErrUsage, name, text, err)
			}
		}
	}
	return nil
}

// NonDefault returns a line for each setting whose value is not its default: its name, its
// value and the source.
func NonDefault(settings []*Setting) []string {
	var lines []string
	for _, s := range settings {
		if s.from != "" && s.String() != s.preset {
			lines = append(lines, fmt.Sprintf("%s=%s (%s)", s.Name, s.String(), s.from))
		}
	}
	return lines
}

func didYouMean(name string, known []string) string {
	best, distance := "", 4 // a suggestion that differs more would not help
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return "; see kvd serve --help"
	}
	return "; did you mean " + best + "?"
}

// editDistance returns the Levenshtein distance: how many letters to insert, delete or
// replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
