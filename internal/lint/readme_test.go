package lint

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documents are the texts for readers, whose names and links have to exist.
var documents = []string{"README.md", "internal/README.md", "internal/GUARANTEES.md", "cmd/kvd/README.md", "cmd/kvbench/README.md", "bench/README.md"}

var (
	quotedWords = regexp.MustCompile("`[^`\n]+`")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noAnchor    = regexp.MustCompile("[^a-z0-9 _-]")
	testName    = regexp.MustCompile(`^(?:([a-z/]+): )?((?:Test|Example|Benchmark|Fuzz)[A-Z]?\w*)$`)
)

// TestTestsInDocumentsExist: a test, example or benchmark that a document names must exist,
// in the package that the document gives or else anywhere in the module.
func TestTestsInDocumentsExist(t *testing.T) {
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
	for _, document := range documents {
		text, err := os.ReadFile("../../" + document)
		require.NoError(t, err)
		for _, quoted := range quotedWords.FindAllString(string(text), -1) {
			found := testName.FindStringSubmatch(strings.Trim(quoted, "`"))
			if found == nil {
				continue
			}
			names++
			if pkg, name := found[1], found[2]; len(in[name]) == 0 || pkg != "" && !in[name][pkg] {
				t.Errorf("%s names %s, which does not exist there", document, quoted)
			}
		}
	}
	require.Greater(t, names, 40, "the documents name tests")
}

// TestLinksOfDocumentsLead: a link to another place of the repository leads to a file, and
// to a heading of it if it names one.
func TestLinksOfDocumentsLead(t *testing.T) {
	links := 0
	for _, document := range documents {
		text, err := os.ReadFile("../../" + document)
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(found[1], "#")
			if file == "" {
				file = path.Base(document)
			}
			target, err := os.ReadFile(path.Join("../..", path.Dir(document), file))
			if !assert.NoError(t, err, "%s links to %s", document, found[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(string(target)), anchor, "%s links to %s", document, found[1])
		}
	}
	require.Greater(t, links, 10, "the documents link to each other")
}

// anchors returns what the headings of a Markdown text are linked by.
func anchors(text string) []string {
	var all []string
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return all
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
