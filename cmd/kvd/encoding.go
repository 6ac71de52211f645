package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/escape"
)

// encoding is the encoding of keys and values in arguments and in output.
type encoding struct{ hex, base64, escaped bool }

func (e *encoding) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.hex, "hex", false, "keys and values are in hexadecimal")
	cmd.Flags().BoolVar(&e.base64, "base64", false, "keys and values are in base64")
	cmd.Flags().BoolVarP(&e.escaped, "escaped", "e", false, `in keys and values \xNN stands for a byte and \\ for a backslash`)
	cmd.MarkFlagsMutuallyExclusive("hex", "base64", "escaped")
}

// decode decodes an argument.
func (e *encoding) decode(what, text string) (b []byte, err error) {
	switch {
	case e.hex:
		b, err = hex.DecodeString(text)
	case e.base64:
		b, err = base64.StdEncoding.DecodeString(text)
	case e.escaped:
		b, err = escape.Parse(text)
	default:
		b = []byte(text)
	}
	if err != nil {
		return nil, usagef("%s %q: %w", what, text, err)
	}
	return b, nil
}

// encode encodes bytes for output as the flags say; without flags it escapes them for a
// terminal and leaves them unchanged otherwise.
func (e *encoding) encode(b []byte, forPerson bool) string {
	switch {
	case e.hex:
		return hex.EncodeToString(b)
	case e.base64:
		return base64.StdEncoding.EncodeToString(b)
	case e.escaped || forPerson:
		return escape.Bytes(b)
	}
	return string(b)
}

// key decodes an argument that is a key.
func (e *encoding) key(text string) ([]byte, error) {
	key, err := e.decode("key", text)
	if err == nil && len(key) == 0 {
		err = usagef("the key is empty; a key has at least one byte")
	}
	return key, err
}

// newline returns the newline after encoded output, empty if the bytes were left unchanged.
func (e *encoding) newline(forPerson bool) string {
	if e.hex || e.base64 || e.escaped || forPerson {
		return "\n"
	}
	return ""
}

// say prints a message to a terminal, and nothing into a pipe, where the exit code suffices.
func (a *app) say(format string, args ...any) {
	if isTerminal(a.out) {
		fmt.Fprintf(a.out, format, args...)
	}
}
