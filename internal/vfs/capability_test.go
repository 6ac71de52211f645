package vfs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func methodsOf(t reflect.Type) (names []string) {
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}

var (
	fsMethods   = methodsOf(reflect.TypeFor[vfs.FS]())
	fileMethods = methodsOf(reflect.TypeFor[vfs.File]())
)

// TestTheRealFileSystemHasNoPathOfItsOwn: code above could find out by a type assertion
// that a file can do more than File says, and take another path in production than in the
// tests. So the real file system has the methods of the interfaces and no others; then
// every double has them too.
func TestTheRealFileSystemHasNoPathOfItsOwn(t *testing.T) {
	f, err := vfs.OS.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	assert.Equal(t, fileMethods, methodsOf(reflect.TypeOf(f)))
	require.NoError(t, f.Close())
	assert.Equal(t, fsMethods, methodsOf(reflect.TypeOf(vfs.OS)))

	// Reflection does not show methods that only this package could ask for.
	allowed := map[string][]string{"osFS": fsMethods, "osFile": fileMethods}
	seen := 0
	set := token.NewFileSet()
	files, err := filepath.Glob("*.go") // for every system, whatever this one is
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if names, ok := allowed[receiverOf(n)]; ok {
					seen++
					assert.Contains(t, names, n.Name.Name, "%s: the doubles have no such method", set.Position(n.Pos()))
				}
			case *ast.TypeAssertExpr:
				if isSys(n.X) {
					break // a description of a file, which does nothing
				}
				t.Errorf("%s: no file system may be asked what else it can do", set.Position(n.Pos()))
			}
			return true
		})
	}
	assert.GreaterOrEqual(t, seen, len(fsMethods)+len(fileMethods))
}

// isSys reports whether x calls FileInfo.Sys.
func isSys(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Sys"
}

func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	name, ok := expr.(*ast.Ident)
	if !ok {
		return ""
	}
	return name.Name
}

// TestDoublesCanDoWhatTheRealFileSystemCan lists by name what a double lacks.
func TestDoublesCanDoWhatTheRealFileSystemCan(t *testing.T) {
	real, err := vfs.OS.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	defer func() { require.NoError(t, real.Close()) }()
	mem := vfs.NewMem()
	for name, double := range map[string]vfs.FS{
		"Mem":     mem,
		"faultfs": faultfs.Wrap(mem, nil),
		"Watched": vfs.Watch(mem),
	} {
		t.Run(name, func(t *testing.T) {
			f, err := double.Create(name)
			require.NoError(t, err)
			assert.Subset(t, methodsOf(reflect.TypeOf(double)), methodsOf(reflect.TypeOf(vfs.OS)))
			assert.Subset(t, methodsOf(reflect.TypeOf(f)), methodsOf(reflect.TypeOf(real)))
			require.NoError(t, f.Close())
			_, err = double.Stat(name)
			require.NotErrorIs(t, err, os.ErrNotExist)
		})
	}
}
