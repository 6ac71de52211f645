package lint

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	quotedWords = regexp.MustCompile("`[^`\n]+`")
	testName    = regexp.MustCompile(`^(?:([a-z/]+): )?((?:Test|Example|Benchmark|Fuzz)[A-Z]?\w*)$`)
)

// TestTestsInREADMEsExist: a test, example or benchmark that a README names must exist,
// in the package that the README gives or else anywhere in the module.
func TestTestsInREADMEsExist(t *testing.T) {
	in := map[string]map[string]bool{} // packages, by function name
	walkGo(t, func(file string, _ *token.FileSet, tree *ast.File) {
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasSuffix(file, "_test.go") {
				if in[f.Name.Name] == nil {
					in[f.Name.Name] = map[string]bool{}
				}
				in[f.Name.Name][strings.TrimPrefix(path.Dir(file), "internal/")] = true
			}
		}
	})
	names := 0
	for _, readme := range []string{"README.md", "internal/README.md"} {
		text, err := os.ReadFile("../../" + readme)
		require.NoError(t, err)
		for _, quoted := range quotedWords.FindAllString(string(text), -1) {
			found := testName.FindStringSubmatch(strings.Trim(quoted, "`"))
			if found == nil {
				continue
			}
			names++
			if pkg, name := found[1], found[2]; len(in[name]) == 0 || pkg != "" && !in[name][pkg] {
				t.Errorf("%s names %s, which does not exist there", readme, quoted)
			}
		}
	}
	require.Greater(t, names, 40, "the READMEs name tests")
}

// TestTheFirstProgramOfTheREADMERuns: the lines of the README's first Go program, but for the
// address and for what it does with errors, are lines of Example, which go test runs.
func TestTheFirstProgramOfTheREADMERuns(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, _ = strings.Cut(program, "```")
	source, err := os.ReadFile("../../pkg/kvd/example_test.go")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(source), "func Example() {\n")
	example, _, _ = strings.Cut(example, "\n}\n")
	runs := map[string]bool{}
	for line := range strings.Lines(example) {
		runs[strings.TrimSpace(line)] = true
	}
	compared := 0
	for line := range strings.Lines(program) {
		line = strings.TrimSpace(line)
		if line == "return err" || strings.Contains(line, "kvd.Open(") {
			continue
		}
		require.True(t, line == "" || runs[line], "Example does not have the line %q", line)
		compared++
	}
	require.Greater(t, compared, 10)
}
