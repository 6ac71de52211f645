package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kvd-db/kvd/internal/bytesize"
)

// maxFileBytes is far beyond a file with every setting and a page of comments for each.
const maxFileBytes = 1 << 20

// SetFromFile sets all settings that neither a flag nor a variable has set from a
// configuration file: YAML, with the names that the flags have.
//
//	listen: 127.0.0.1:7070
//	memory: 2GiB
//	max-sync-time: 20s
//
// Every entry must be a known setting with a valid value, also one that a flag or a
// variable overrides: the file must not begin to fail when the flag goes. Errors name the
// file and the line. name is the file, for messages.
func SetFromFile(settings []*Setting, name string, file io.Reader) error {
	entries, err := readEntries(file)
	if err != nil {
		return fmt.Errorf("%w: configuration file %s: %w", ErrUsage, name, err)
	}
	scratch := new(Config).Settings() // values are tried there first
	seen := make(map[string]int, len(entries))
	for _, e := range entries {
		i := slices.IndexFunc(settings, func(s *Setting) bool { return s.Name == e.name })
		switch {
		case i < 0:
			return fmt.Errorf("%w: configuration file %s, line %d: %s is not a setting%s", ErrUsage, name, e.line, e.name, didYouMean(e.name, names(settings)))
		case seen[e.name] > 0:
			return fmt.Errorf("%w: configuration file %s, line %d: %s was set in line %d already", ErrUsage, name, e.line, e.name, seen[e.name])
		}
		seen[e.name] = e.line
		if err := scratch[i].value.Set(e.text); err != nil {
			return fmt.Errorf("%w: configuration file %s, line %d: %s: %w", ErrUsage, name, e.line, e.name, err)
		}
		if s := settings[i]; s.from == "" {
			if err := s.set(e.text, fmt.Sprintf("%s:%d", name, e.line)); err != nil {
				return err
			}
		}
	}
	return nil
}

func names(settings []*Setting) []string {
	list := make([]string, len(settings))
	for i, s := range settings {
		list[i] = s.Name
	}
	return list
}

// entry is one line of a configuration file.
type entry struct {
	name, text string
	line       int
}

func readEntries(file io.Reader) ([]entry, error) {
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("it is larger than %s", bytesize.Format(maxFileBytes))
	}
	documents := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	if err := documents.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil // nothing but comments
	} else if err != nil {
		return nil, err
	}
	if err := documents.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one YAML document; want one")
	}
	top := document.Content[0]
	if top.Kind == yaml.ScalarNode && top.ShortTag() == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want one setting a line, such as memory: 2GiB", top.Line)
	}
	var entries []entry
	for pair := range slices.Chunk(top.Content, 2) {
		key, value := pair[0], pair[1]
		switch {
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: want the name of a setting", key.Line)
		case value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null":
			return nil, fmt.Errorf("line %d: %s needs one value; leave the line out for the default", key.Line, key.Value)
		}
		entries = append(entries, entry{key.Value, value.Value, key.Line})
	}
	return entries, nil
}
