package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// script is the ordered operations of a transaction.
type script []operation

// operation is a line of a script. It may run several times, each in a new transaction.
type operation struct {
	line int
	text string // its beginning, for messages
	// writes: without such an operation a transaction has nothing to commit.
	writes bool
	run    step
}

// step performs an operation in a transaction and appends what it read to seen.
type step func(ctx context.Context, tx *kvd.Txn, seen *[]sight) error

// sight is the result of reading a key.
type sight struct {
	line int
	kvd.Lookup
}

// run runs the operations up to the first error, which names its line.
func (s script) run(ctx context.Context, tx *kvd.Txn) (seen []sight, err error) {
	for _, op := range s {
		begin := len(seen)
		if err := op.run(ctx, tx, &seen); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", op.line, op.text, err)
		}
		for i := range seen[begin:] {
			seen[begin+i].line = op.line
		}
	}
	return seen, nil
}

// writes reports whether the script may write.
func (s script) writes() bool {
	return slices.ContainsFunc(s, func(op operation) bool { return op.writes })
}

// maxScriptLine bounds a line: the largest item with each byte as \xNN, and room for the
// other words.
const maxScriptLine = (kv.MaxKeyBytes+kv.MaxValueBytes)*len(`\xNN`) + 4096

// parseScript parses a whole script. An error in the script names the line and is a usage
// error.
func parseScript(r io.Reader, enc *encoding) (script, error) {
	var s script
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), maxScriptLine)
	number := 0
	for scanner.Scan() {
		number++
		words, err := splitWords(scanner.Text())
		if err != nil {
			return nil, usagef("line %d: %w", number, err)
		}
		if len(words) == 0 || !words[0].quoted && strings.HasPrefix(words[0].text, "#") {
			continue
		}
		op, err := parseOperation(words, enc)
		if err != nil {
			return nil, usagef("line %d: %w", number, err)
		}
		op.line = number
		s = append(s, op)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("after line %d: %w", number, err)
	}
	if len(s) == 0 {
		return nil, usagef("the script has no operations")
	}
	return s, nil
}

// verbs are the operations of a script, in the order of the help.
var verbs = []verb{
	{"get", "KEY", 1, 1, false, parseGet},
	{"scan", "PREFIX", 1, 1, false, parseScan},
	{"put", "KEY VALUE [TTL]", 2, 3, true, parsePut},
	{"del", "KEY", 1, 1, true, parseDelete},
	{"delrange", "START [END]", 1, 2, true, parseDeleteRange},
	{"assert", "KEY VALUE", 2, 2, false, parseAssert},
	{"assert-version", "KEY N", 2, 2, false, parseAssertVersion},
	{"assert-present", "KEY", 1, 1, false, parseAssertPresent},
	{"assert-absent", "KEY", 1, 1, false, parseAssertAbsent},
}

type verb struct {
	name, takes string
	least, most int // words after the name
	writes      bool
	parse       func(*arguments) step
}

// parseOperation parses the words of a line.
func parseOperation(words []word, enc *encoding) (operation, error) {
	name, rest := words[0].text, words[1:]
	for _, v := range verbs {
		if v.name != name {
			continue
		}
		if len(rest) < v.least || len(rest) > v.most {
			return operation{}, fmt.Errorf("want %s %s, here are %d words after %s", v.name, v.takes, len(rest), v.name)
		}
		in := &arguments{enc: enc, words: rest}
		text := name + " " + shorten(escape.Bytes([]byte(rest[0].text)))
		return operation{text: text, writes: v.writes, run: v.parse(in)}, in.err
	}
	return operation{}, fmt.Errorf("no operation is called %q; kvd txn --help lists them", shorten(name))
}

// arguments hands out the words after the name of an operation, and keeps the
// first error.
type arguments struct {
	enc   *encoding
	words []word
	err   error
}

func (in *arguments) next() (w word) {
	w, in.words = in.words[0], in.words[1:]
	return w
}

func (in *arguments) fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

func (in *arguments) bytes(what string) []byte {
	b, err := in.enc.decodeWord(what, in.next())
	in.fail(err)
	return b
}

func (in *arguments) key() []byte {
	key := in.bytes("key")
	if len(key) == 0 {
		in.fail(errors.New("the key is empty; a key has at least one byte"))
	}
	return key
}

func (in *arguments) version() uint64 {
	w := in.next()
	v, err := strconv.ParseUint(w.text, 10, 64)
	if err != nil {
		in.fail(fmt.Errorf("version %q is no number; an absent key has version 0", w.text))
	}
	return v
}

// ttl parses a time to live, if one is given.
func (in *arguments) ttl() []kvd.WriteOption {
	if len(in.words) == 0 {
		return nil
	}
	w := in.next()
	d, err := time.ParseDuration(w.text)
	if err != nil || d <= 0 {
		in.fail(fmt.Errorf("time to live %q; want a duration such as 500ms or 24h", w.text))
	}
	return []kvd.WriteOption{kvd.TTL(d)}
}

func parseGet(in *arguments) step {
	key := in.key()
	return func(ctx context.Context, tx *kvd.Txn, seen *[]sight) error {
		found, err := look(ctx, tx, key)
		*seen = append(*seen, sight{Lookup: found})
		return err
	}
}

func parseScan(in *arguments) step {
	r := kvd.Prefix(in.bytes("prefix"))
	return func(ctx context.Context, tx *kvd.Txn, seen *[]sight) error {
		for item, err := range tx.Scan(ctx, r) {
			if err != nil {
				return err
			}
			*seen = append(*seen, sight{Lookup: kvd.Lookup{Item: item, Found: true}})
		}
		return nil
	}
}

func parsePut(in *arguments) step {
	key, value, ttl := in.key(), in.bytes("value"), in.ttl()
	return func(ctx context.Context, tx *kvd.Txn, _ *[]sight) error {
		return tx.Put(ctx, key, value, ttl...)
	}
}

func parseDelete(in *arguments) step {
	key := in.key()
	return func(ctx context.Context, tx *kvd.Txn, _ *[]sight) error { return tx.Delete(ctx, key) }
}

func parseDeleteRange(in *arguments) step {
	r := kvd.Range{Start: in.bytes("start")}
	if len(in.words) > 0 {
		r.End = in.bytes("end")
		if len(r.End) == 0 {
			in.fail(errors.New("the end is empty; leave it out to remove up to the last key"))
		}
	}
	if len(r.End) > 0 && string(r.Start) >= string(r.End) {
		in.fail(errors.New("the range ends before it starts, or at once"))
	}
	return func(ctx context.Context, tx *kvd.Txn, _ *[]sight) error { return tx.DeleteRange(ctx, r) }
}

func parseAssert(in *arguments) step {
	key, value := in.key(), in.bytes("value")
	return assertion(in.enc, key, func(found *kvd.Lookup) bool {
		return found.Found && string(found.Value) == string(value)
	})
}

// parseAssertVersion: a key that the transaction itself wrote has no version yet.
func parseAssertVersion(in *arguments) step {
	key, version := in.key(), in.version()
	return assertion(in.enc, key, func(found *kvd.Lookup) bool {
		return found.Version == version && found.Found == (version != 0)
	})
}

func parseAssertPresent(in *arguments) step {
	return assertion(in.enc, in.key(), func(found *kvd.Lookup) bool { return found.Found })
}

func parseAssertAbsent(in *arguments) step {
	return assertion(in.enc, in.key(), func(found *kvd.Lookup) bool { return !found.Found })
}

// opAssert is the call that the error of an assertion names.
const opAssert = "assert"

// assertion reads key and fails unless holds accepts the result.
func assertion(enc *encoding, key []byte, right func(*kvd.Lookup) bool) step {
	return func(ctx context.Context, tx *kvd.Txn, _ *[]sight) error {
		found, err := look(ctx, tx, key)
		if err != nil || right(&found) {
			return err
		}
		message := "the key is absent"
		if found.Found {
			message = fmt.Sprintf("the key has version %d and value %s", found.Version, shorten(enc.encodeWord(found.Value)))
		}
		return &kvd.Error{
			Op: opAssert, Reason: kvdpb.ReasonConditionFailed, Version: found.Version,
			Message: message, Err: kvd.ErrConflict,
		}
	}
}

// look reads a key that may be absent.
func look(ctx context.Context, tx *kvd.Txn, key []byte) (kvd.Lookup, error) {
	item, err := tx.GetItem(ctx, key)
	if errors.Is(err, kvd.ErrNotFound) {
		return kvd.Lookup{Item: kvd.Item{Key: key}}, nil
	}
	return kvd.Lookup{Item: item, Found: err == nil}, err
}

// shorten truncates text for a message.
func shorten(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
