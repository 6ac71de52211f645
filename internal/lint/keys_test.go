package lint

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsHaveNoKeys: errors of the packages that handle stored data end up in logs, in scrub
// reports and at other clients than those that wrote the keys. They name files, numbers and
// lengths, and no keys or values.
func TestErrorsHaveNoKeys(t *testing.T) {
	packages := map[string]bool{}
	for _, name := range []string{
		"backup", "commit", "compaction", "engine", "inspect", "manifest", "mergeiter", "partition", "record",
		"repair", "replicated", "scanbatch", "sstable", "valuefile", "verify", "wal",
	} {
		packages["internal/"+name] = true
	}
	secret := map[string]bool{"Key": true, "Value": true, "Smallest": true, "Largest": true}
	calls := 0
	walkGo(t, func(file string, set *token.FileSet, tree *ast.File) {
		if strings.HasSuffix(file, "_test.go") || !packages[path.Dir(file)] {
			return
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || fun.Sel.Name != "Errorf" && fun.Sel.Name != "Corruptf" {
				return true
			}
			calls++
			for _, arg := range call.Args {
				name := ""
				switch arg := arg.(type) {
				case *ast.SelectorExpr:
					name = arg.Sel.Name
				case *ast.Ident:
					name = arg.Name
				case *ast.CallExpr:
					if f, ok := arg.Fun.(*ast.SelectorExpr); ok && isIdent(f.X, "escape") {
						t.Errorf("%s: it may be a key or a value: errors have none", set.Position(arg.Pos()))
					}
				}
				if name != "" && secret[strings.ToUpper(name[:1])+name[1:]] {
					t.Errorf("%s: %s may be a key or a value: errors have none", set.Position(arg.Pos()), name)
				}
			}
			return true
		})
	})
	require.Greater(t, calls, 100, "the walk saw too few errors to mean anything")
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
