// Command wordnet turns a dictionary in the dictd format (an index of headwords
// and a compressed text) into JSON lines, one for each headword, in the order of
// the headwords:
//
//	{"key":"dog","value":"dog\n    n 1: a member of the genus Canis ..."}
//
// It is a real input for `kvd import`, run by scripts/wordnet.sh.
package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: wordnet INDEX DICT.dz > LINES")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "wordnet:", err)
		os.Exit(1)
	}
}

func run(index, dict string, w io.Writer) error {
	text, err := readDict(dict)
	if err != nil {
		return err
	}
	entries, err := readIndex(index, text)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, word := range slices.Sorted(maps.Keys(entries)) {
		line := struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		}{word, strings.Join(entries[word], "\n")}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// readDict returns the whole text; the dictzip format is gzip with an index.
func readDict(name string) (text []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// readIndex returns the definitions of each headword. A line of the index is
// headword, offset and length, separated by tabs, the numbers in dictd's base 64.
func readIndex(name string, text []byte) (entries map[string][]string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	entries = make(map[string][]string)
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s, line %d: %d fields, want 3", name, n, len(fields))
		}
		offset, okOffset := number(fields[1])
		length, okLength := number(fields[2])
		if !okOffset || !okLength || offset+length > len(text) {
			return nil, fmt.Errorf("%s, line %d: text at %q, %q is not in the dictionary", name, n, fields[1], fields[2])
		}
		word := fields[0]
		if strings.HasPrefix(word, "00-database-") || word == "" {
			continue // about the dictionary, not in it
		}
		definition := strings.TrimRight(string(text[offset:offset+length]), "\n")
		if !slices.Contains(entries[word], definition) {
			entries[word] = append(entries[word], definition)
		}
	}
	return entries, lines.Err()
}

func number(s string) (n int, ok bool) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for _, c := range []byte(s) {
		d := strings.IndexByte(digits, c)
		if d < 0 || n > 1<<40 {
			return 0, false
		}
		n = n<<6 | d
	}
	return n, s != ""
}
