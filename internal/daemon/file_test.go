package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlagsAndVariablesWinOverTheFile(t *testing.T) {
	c := DefaultConfig()
	settings := c.Settings()
	for _, s := range settings {
		if s.Name == "linger" {
			require.NoError(t, s.Set("500us"))
		}
	}
	require.NoError(t, SetFromEnv(settings, []string{"KVD_MEMORY=1GiB"}))
	require.NoError(t, SetFromFile(settings, "kvd.yaml", strings.NewReader(
		"# comment\nlinger: 1ms\nmemory: 2GiB\nbatch-ops: 64 # and one here\ndev: true\nlisten: \"127.0.0.1:1\"\ngrace: 10s\n")))
	assert.Equal(t, []string{
		"listen=127.0.0.1:1 (kvd.yaml:6)", "memory=1GiB (KVD_MEMORY)", "batch-ops=64 (kvd.yaml:4)",
		"linger=500µs (--linger)", "dev=true (kvd.yaml:5)",
	}, NonDefault(settings), "grace was set to its default")
}

func TestAFileWithoutSettingsIsEmpty(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "---\n# nothing\n", "{}"} {
		c := DefaultConfig()
		settings := c.Settings()
		require.NoError(t, SetFromFile(settings, "f", strings.NewReader(text)), "%q", text)
		assert.Empty(t, NonDefault(settings))
	}
}

func TestWhatIsWrongInAFileIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"memroy: 1GiB":                      "line 1: memroy is not a setting; did you mean memory?",
		"\nwhatever-this-is: 1":             "line 2: whatever-this-is is not a setting; see kvd serve --help",
		"Memory: 1GiB":                      "line 1: Memory is not a setting; did you mean memory?",
		"memory: 1GiB\nmemory: 1B":          "line 2: memory was set in line 1 already",
		"memory: lots":                      `line 1: memory: "lots" is no size`,
		"memory:":                           "line 1: memory needs one value",
		"memory: ~":                         "line 1: memory needs one value",
		"memory: [1GiB]":                    "line 1: memory needs one value",
		"memory: {a: b}":                    "line 1: memory needs one value",
		"data: &a x\nadmin: *a":             "line 2: admin needs one value",
		"- memory":                          "line 1: want one setting a line",
		"memory":                            "line 1: want one setting a line",
		"[a]: b":                            "line 1: want the name of a setting",
		"memory: 1GiB\n---\n":               "more than one YAML document",
		"memory: \"1GiB":                    "f: yaml: ",
		"\x00":                              "f: yaml: ",
		strings.Repeat("#", maxFileBytes+1): "larger than 1MiB",
	} {
		c := DefaultConfig()
		err := SetFromFile(c.Settings(), "f", strings.NewReader(text))
		require.ErrorIs(t, err, ErrUsage, text)
		assert.ErrorContains(t, err, want, text)
	}
}

// A value that a flag overrides is checked all the same.
func TestAnOverriddenValueMustBeValid(t *testing.T) {
	c := DefaultConfig()
	settings := c.Settings()
	require.NoError(t, settings[0].Set("/data"))
	require.NoError(t, SetFromEnv(settings, []string{"KVD_MEMORY=1GiB"}))
	require.NoError(t, SetFromFile(settings, "f", strings.NewReader("data: elsewhere")))
	assert.Equal(t, "/data", c.Data)
	assert.ErrorContains(t, SetFromFile(settings, "f", strings.NewReader("memory: lots")), "line 1: memory")
}

// What a file holds that gets through is exactly what its settings then say.
func FuzzSetFromFile(f *testing.F) {
	f.Add("memory: 1GiB\nlinger: 1ms\n")
	f.Add("a: &a [*a]\n")
	f.Add("{data: \"\\x00\", listen: |\n  x\n}")
	f.Fuzz(func(t *testing.T, text string) {
		c := DefaultConfig()
		settings := c.Settings()
		if err := SetFromFile(settings, "f", strings.NewReader(text)); err != nil {
			assert.ErrorIs(t, err, ErrUsage)
			return
		}
		entries, err := readEntries(strings.NewReader(text))
		require.NoError(t, err)
		set := 0
		for _, s := range settings {
			if s.from != "" {
				set++
			}
		}
		assert.Equal(t, len(entries), set)
	})
}
