package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

const importsBoth = `package p

import (
	"testing"

	"github.com/kvd-db/kvd/internal/testsize"
	"pgregory.net/rapid"
)
`

func write(t *testing.T, files map[string]string) (root string) {
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

// However a test comes to testsize.Reduced or to rapid, it is found.
func TestWaysToASample(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"directly": {
			`func TestA(t *testing.T) { if testsize.Reduced() { return } }
			 func TestB(t *testing.T) { t.Log("TestA") }`,
			[]string{"TestA"},
		},
		"by functions": {
			`func TestA(t *testing.T) { f() }
			 func f() { g() }
			 func g() { h := testsize.Reduced; h() }
			 func TestB(t *testing.T) { t.Log() }`,
			[]string{"TestA"},
		},
		"by a method": {
			`type w struct{}
			 func (w *w) g() { testsize.Reduced() }
			 func TestA(t *testing.T) { make().g() }
			 func TestB(t *testing.T) { t.Log() }`,
			[]string{"TestA"},
		},
		"by a method that another package calls": {
			`type w[T any] struct{}
			 func (w w[T]) String() string { testsize.Reduced(); return "" }
			 func TestA(t *testing.T) { t.Log(w[int]{}) }
			 func TestB(t *testing.T) { t.Log() }`,
			[]string{"TestA"},
		},
		"by a variable": {
			`var rounds = map[bool]int{true: 1}[testsize.Reduced()]
			 var b = []func(){func() { c() }}
			 func c() { testsize.Reduced() }
			 func TestA(t *testing.T) { t.Log(rounds) }
			 func TestB(t *testing.T) { b[0]() }
			 func TestC(t *testing.T) { t.Log() }`,
			[]string{"TestA", "TestB"},
		},
		"by rapid": {
			`func TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { f(t) }) }
			 func f(*rapid.T) {}
			 func FuzzB(f *testing.F) { f.Fuzz(rapid.MakeFuzz(func(*rapid.T) {})) }
			 func TestC(t *testing.T) { t.Run("", rapid.MakeCheck(func(*rapid.T) {})) }
			 func TestD(t *testing.T) { t.Log(rapid.Int().Example(1)) }`,
			[]string{"FuzzB", "TestA", "TestC"},
		},
		"by init": {
			`func init() { testsize.Reduced() }
			 func TestA(t *testing.T) {}
			 func ExampleB() {}`,
			[]string{"ExampleB", "TestA"},
		},
		"by TestMain": {
			`func TestMain(m *testing.M) { testsize.Reduced(); m.Run() }
			 func TestA(t *testing.T) {}`,
			[]string{"TestA"},
		},
		"by a variable without a name": {
			`var _ = testsize.Reduced()
			 func TestA(t *testing.T) {}`,
			[]string{"TestA"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := find(write(t, map[string]string{"a/a_test.go": importsBoth + c.text}))
			require.NoError(t, err)
			require.Equal(t, selection{tests: c.want, packages: []string{"./a"}}, found)
		})
	}
}

// Files of one directory are searched together, tests of its own and of package p_test alike,
// and whatever their build constraints.
func TestFilesOfOneDirectory(t *testing.T) {
	found, err := find(write(t, map[string]string{
		"a/a_test.go":          "package p\nfunc TestA(t *testing.T) { f() }\nfunc TestB(t *testing.T) {}",
		"a/b_test.go":          importsBoth + "func f() { testsize.Reduced() }",
		"b/b_test.go":          "package p\nfunc TestC(t *testing.T) { f() }",
		"c/c_windows_test.go":  strings.Replace(importsBoth, "package p", "package p_test", 1) + "func TestD(t *testing.T) { testsize.Reduced() }",
		"d/d_test.go":          "package p\nimport \"pgregory.net/rapid\"\nfunc TestE(t *testing.T) { rapid.Check(t, nil) }",
		"testdata/a_test.go":   importsBoth + "func TestF(t *testing.T) { testsize.Reduced() }",
		"module/go.mod":        "module m",
		"module/a/a_test.go":   importsBoth + "func TestG(t *testing.T) { testsize.Reduced() }",
		"testsize/testsize.go": "package testsize\nimport _ \"pgregory.net/rapid\"",
	}))
	require.NoError(t, err)
	require.Equal(t, selection{tests: []string{"TestA", "TestD"}, packages: []string{"./a", "./c"}}, found)
}

// A package that is another one under the race detector runs whole without it.
func TestBuildConstraints(t *testing.T) {
	const test = "package p\nfunc TestA(t *testing.T) {}\n"
	for name, c := range map[string]struct {
		file, text string
		want       bool
	}{
		"a test file":  {"b_test.go", "//go:build !race\n\npackage p", true},
		"another file": {"b.go", "// License.\n\n//go:build unix && (!linux || race)\n\npackage p", true},
		"another tag":  {"b.go", "//go:build linux\n\npackage p", false},
		"no tag":       {"b.go", "package p\n\n//go:build race\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := find(write(t, map[string]string{
				"a/a_test.go": test, "a/" + c.file: c.text, "b/b_test.go": importsBoth + "var _ = testsize.Reduced()\nfunc TestB(){}",
			}))
			require.NoError(t, err)
			require.Equal(t, c.want, slices.Contains(found.tests, "TestA"))
			require.Equal(t, c.want, slices.Contains(found.packages, "./a"))
		})
	}
}

func TestWhatTheSearchCannotSeeIsRefused(t *testing.T) {
	cases := map[string]struct{ file, text, want string }{
		"a helper that asks":       {"p.go", "package p\nimport \"github.com/kvd-db/kvd/internal/testsize\"", "only test files may"},
		"a helper that uses rapid": {"p.go", "package p\nimport \"pgregory.net/rapid\"", "only test files may"},
		"another name":             {"p_test.go", strings.Replace(importsBoth, `"pgregory`, `r "pgregory`, 1), "another name"},
		"no name":                  {"p_test.go", strings.Replace(importsBoth, `"github`, `. "github`, 1), "another name"},
		"no Go":                    {"p_test.go", "package", "expected"},
		"nothing is reduced":       {"p_test.go", "package p", "no test is reduced"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := find(write(t, map[string]string{c.file: c.text}))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The search finds the tests of this module that are known to take samples, and not all.
func TestSamplesOfThisModule(t *testing.T) {
	testsize.OneGoroutine(t)
	found, err := find("../../..")
	require.NoError(t, err)
	require.Subset(t, found.tests, []string{
		"TestEveryCrashPoint",                  // asks itself
		"TestAFullDiskIsNoReasonToFailAStop",   // asks by a function
		"TestTableIsASortedSliceOfVersions",    // is a property test
		"TestEverythingIsStrictlySerializable", // asks itself
		"TestGuardsInMemoryAndOnDiskAreStrictlySerializable",
	})
	require.Contains(t, found.tests, "TestNothingIsAllocated", "its package asks for the race detector")
	require.Subset(t, found.packages, []string{"./internal/engine", "./internal/wal"})
	require.NotContains(t, found.tests, "TestKilledServerLosesNothingAcknowledged")
	require.True(t, slices.IsSorted(found.tests))
}
