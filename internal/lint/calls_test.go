package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

// TestDiskIsReachedThroughVFS: below the commands every disk access goes through
// internal/vfs; otherwise tests could not inject a fault there.
func TestDiskIsReachedThroughVFS(t *testing.T) {
	forbidden := map[string]bool{
		"Open": true, "OpenFile": true, "Create": true, "CreateTemp": true, "Remove": true, "RemoveAll": true,
		"Rename": true, "Mkdir": true, "MkdirAll": true, "MkdirTemp": true, "WriteFile": true, "ReadFile": true,
		"ReadDir": true, "Truncate": true, "Link": true, "Symlink": true,
	}
	allowed := func(file string) bool {
		return strings.HasSuffix(file, "_test.go") ||
			strings.HasPrefix(file, "internal/vfs/") ||
			strings.HasPrefix(file, "internal/loadgen/") || // /proc
			strings.HasPrefix(file, "internal/results/") || // what a benchmark leaves behind
			strings.HasPrefix(file, "internal/torture/") ||
			strings.HasPrefix(file, "cmd/") ||
			strings.HasPrefix(file, "scripts/")
	}
	files := 0
	walkGo(t, func(file string, set *token.FileSet, tree *ast.File) {
		if allowed(file) {
			return
		}
		files++
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "os" && forbidden[sel.Sel.Name] {
				t.Errorf("%s: os.%s: go through internal/vfs", set.Position(sel.Pos()), sel.Sel.Name)
			}
			return true
		})
	})
	require.Greater(t, files, 50, "the walk saw too few files to mean anything")
}

// TestRenameHasOneHome: only vfs.WriteAtomic publishes files of a store by rename, and only the
// manifest sets files aside. A rename elsewhere would sooner or later lack a sync. The report of
// a benchmark needs none: a power cut may cost it.
func TestRenameHasOneHome(t *testing.T) {
	seen := 0
	walkGo(t, func(file string, set *token.FileSet, tree *ast.File) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/vfs/") {
			return
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Rename" {
				return true
			}
			seen++
			if !strings.HasPrefix(file, "internal/manifest/") && !strings.HasPrefix(file, "internal/results/") {
				t.Errorf("%s: Rename outside vfs.WriteAtomic and lost+found", set.Position(call.Pos()))
			}
			return true
		})
	})
	require.Positive(t, seen, "setting files aside renames: the walk missed it")
}

// TestTestsWaitAsLongAsTheirBinary: a test that polls with a limit of its own fails on
// a loaded machine. testwait.Until uses the timeout of go test.
func TestTestsWaitAsLongAsTheirBinary(t *testing.T) {
	forbidden := map[string]bool{
		"Eventually": true, "Eventuallyf": true, "EventuallyWithT": true, "EventuallyWithTf": true, "Never": true, "Neverf": true,
	}
	polls := 0
	walkGo(t, func(file string, set *token.FileSet, tree *ast.File) {
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			switch {
			case !ok:
			case pkg.Name == "testwait" && sel.Sel.Name == "Until":
				polls++
			case (pkg.Name == "require" || pkg.Name == "assert") && forbidden[sel.Sel.Name]:
				t.Errorf("%s: %s.%s has a time limit of its own: use testwait.Until", set.Position(sel.Pos()), pkg.Name, sel.Sel.Name)
			}
			return true
		})
	})
	require.Positive(t, polls, "the walk saw no poll at all")
}

// walkGo visits every file of the module. The tests share the trees, and change none. The race
// detector makes parsing the module several times as expensive and has one goroutine to look at.
func walkGo(t *testing.T, visit func(file string, set *token.FileSet, tree *ast.File)) {
	t.Helper()
	testsize.OneGoroutine(t)
	all, err := parseModule()
	require.NoError(t, err)
	for _, f := range all.files {
		visit(f.name, all.set, f.tree)
	}
}

// sources are the files of the module, with names relative to its root.
type sources struct {
	set   *token.FileSet
	files []source
}

type source struct {
	name string
	tree *ast.File
}

var parseModule = sync.OnceValues(func() (sources, error) {
	all := sources{set: token.NewFileSet()}
	root, err := filepath.Abs("../..")
	if err != nil {
		return all, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == "bench" || (strings.HasPrefix(d.Name(), ".") && rel != ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		tree, err := parser.ParseFile(all.set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all.files = append(all.files, source{filepath.ToSlash(rel), tree})
		return nil
	})
	return all, err
})
