package lint

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoFileIsMapped: a thread that touches a mapped file may block in a page fault
// while it holds a processor of Go's scheduler. The next garbage collection then waits
// for it, and the whole process waits for the garbage collection.
func TestNoFileIsMapped(t *testing.T) {
	forbidden := map[string]bool{
		"Mmap": true, "MmapPtr": true, "Mremap": true, "SYS_MMAP": true, "SYS_MREMAP": true, "SetPanicOnFault": true,
	}
	files, selectors := 0, 0
	walkGo(t, func(file string, set *token.FileSet, tree *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		files++
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			selectors++
			if forbidden[sel.Sel.Name] {
				t.Errorf("%s: %s: no file may be mapped into memory; read and write by calls", set.Position(sel.Pos()), sel.Sel.Name)
			}
			return true
		})
	})
	require.Greater(t, files, 200, "the walk saw too few files to mean anything")
	require.Greater(t, selectors, 10_000)
}
