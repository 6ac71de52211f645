package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

func TestAScriptIsOneTransaction(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	p.must("put", "user/1", "Ada")
	p.must("put", "user/2", "Grace Hopper")
	p.must("put", "-e", `user/3\xff`, "")
	script := `# everything at once
assert user/1 Ada
assert-version user/1 1
assert-present user/2
assert-absent user/9

scan user/
del user/2
put user/9 "a b" 1h
get user/9
get user/2
delrange user/3 user/4
put user/3 "\x00\"\\"
scan user/
assert-absent user/2
assert user/9 "a b"
`
	r := p.kvdWith(script, "txn")
	require.Zero(t, r.code, r.err)
	assert.Equal(t, `user/1 = Ada
user/2 = "Grace Hopper"
"user/3\xff" = ""
user/9 = "a b"
user/2 is absent
user/1 = Ada
user/3 = "\x00\"\\"
user/9 = "a b"
committed at version 4
`, r.out)
	assert.Equal(t, `user/1 = Ada
user/3 = \x00"\\
user/9 = a b
`, strings.ReplaceAll(p.must("scan", "-e"), "\t", " = "))
	for _, key := range []string{"user/3", "user/9"} {
		assert.Contains(t, p.must("get", "-o", "json", key), `"version":4`, "all at one version")
	}
	assert.Contains(t, p.must("get", "-o", "json", "user/9"), `"ttl_ms":`)
}

func TestATransactionIsPrintedAsJSON(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	p.must("put", "a", "1")
	file := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(file, []byte("get 61\r\n\nget 62\nput ff \"\"\nget ff\n"), 0o600))
	assert.Equal(t, `{"line":1,"key":"a","value":"1","version":1}
{"line":3,"key":"b","absent":true}
{"line":5,"key_base64":"/w==","value":""}
{"committed":true,"version":2}
`, p.must("txn", "--hex", "-o", "json", file))
	assert.Equal(t, "61 = 31\nff = \"\"\nnothing was written; read at version 2\n",
		p.kvdWith("scan \"\"\n", "txn", "--hex").out)
	assert.Equal(t, 64, p.kvd("txn", filepath.Join(t.TempDir(), "none")).code)
}

func TestAnAssertionThatDoesNotHoldEndsTheScriptWithoutATrace(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	p.must("put", "a", "1")
	for line, want := range map[string]string{
		"assert a 2":           "the key has version 1 and value 1",
		"assert none 2":        "the key is absent",
		"assert none \"\"":     "the key is absent",
		"assert-absent a":      "the key has version 1",
		"assert-present none":  "the key is absent",
		"assert-version a 7":   "the key has version 1",
		"assert-version a 0":   "the key has version 1",
		"assert-version b 1":   "the key has version 0", // what the script itself wrote
		"assert-version b 0":   "the key has version 0",
		"assert-version nil 1": "the key is absent",
	} {
		r := p.kvdWith("get a\nput b 1\n"+line+"\nput c 1\n", "txn")
		assert.Equal(t, exitCondition, r.code, "%s: %s", line, r.err)
		assert.Contains(t, r.err, "line 3: assert")
		assert.Contains(t, r.err, want, line)
		assert.Contains(t, r.err, "nothing was written")
		assert.Empty(t, r.out, line)
	}
	assert.Equal(t, "a\n", p.must("scan", "--keys-only"))
	p.kvdWith("assert-version b 0\nassert a 1\nput b 1", "txn")
	assert.Equal(t, "1", p.must("get", "b"))
}

func TestADryRunAndAScriptThatIsNotUnderstoodChangeNothing(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	p.must("put", "a", "1")
	r := p.kvdWith("put a 2\nget a\nget b\n", "txn", "--dry-run")
	assert.Equal(t, result{out: "a = 2\nb is absent\nnothing was written; read at version 1\n"}, r)
	r = p.kvdWith("put a 2\n", "txn", "--dry-run", "-o", "json")
	assert.Equal(t, result{out: `{"committed":false,"version":0}` + "\n"}, r)
	r = p.kvdWith("put a 2\nassert a 1\n", "txn", "--dry-run")
	assert.Equal(t, exitCondition, r.code)
	r = p.kvdWith("put a 2\nptu b 1\n", "txn")
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, `line 2: no operation is called "ptu"`)
	assert.Empty(t, r.out)
	assert.Equal(t, "a\t1\n", p.must("scan"))
}

// meddle is an operation during which another client writes what the script read.
func meddle(t *testing.T, c *kvd.Client, times int) operation {
	return operation{line: 9, text: "meddle", run: func(ctx context.Context, _ *kvd.Txn, _ *[]sight) error {
		if times--; times >= 0 {
			require.NoError(t, c.Put(ctx, []byte("a"), []byte{'0' + byte(times)}))
		}
		return nil
	}}
}

func TestAScriptThatMeetsAnotherTransactionIsRunAgain(t *testing.T) {
	c := kvdtest.New(t)
	require.NoError(t, c.Put(t.Context(), []byte("a"), []byte("first")))
	s, err := parseScript(strings.NewReader("get a\nput b 1\n"), &encoding{})
	require.NoError(t, err)
	o, err := append(s, meddle(t, c, 3)).transact(t.Context(), c, false, kvd.Default)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, o.text(&out, &encoding{}))
	assert.Equal(t, "a = 0\ncommitted at version 5\n", out.String(), "what the last attempt saw, once")
}

func TestAScriptThatMeetsOthersEveryTimeIsExitCode6(t *testing.T) {
	c := kvdtest.New(t)
	s, err := parseScript(strings.NewReader("get a\nput b 1\n"), &encoding{})
	require.NoError(t, err)
	_, err = append(s, meddle(t, c, 1000)).transact(t.Context(), c, false, kvd.Default)
	require.ErrorIs(t, err, kvd.ErrConflict)
	assert.Equal(t, exitConflict, exitCode(err))
	assert.Contains(t, explain(err), "10 attempts")
	assert.Contains(t, explain(err), "nothing was written")
	_, err = c.Get(t.Context(), []byte("b"))
	require.ErrorIs(t, err, kvd.ErrNotFound)
}

func TestExitCodesOfConflictsAreStable(t *testing.T) {
	conflict := &kvd.Error{Op: "put", Reason: "CONDITION_FAILED", Err: kvd.ErrConflict}
	assert.Equal(t, 4, exitCode(conflict))
	conflict.Reason = "CONFLICT"
	assert.Equal(t, 6, exitCode(conflict))
	// A condition that failed at a second try, while the first one was lost.
	unsure := &kvd.Error{Op: "put", Reason: "CONDITION_FAILED", Err: errors.Join(kvd.ErrUncertain, kvd.ErrConflict)}
	assert.Equal(t, 1, exitCode(unsure))
	assert.NotContains(t, explain(unsure), "nothing was written")
}
