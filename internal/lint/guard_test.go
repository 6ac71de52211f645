package lint

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guarded are the packages of the engine whose goroutines and entry points defer
// event.Listener's Guard. The other packages of the engine start goroutines only
// through event.Helpers.
var guarded = map[string]bool{"internal/engine": true, "internal/partition": true, "internal/wal": true}

var engineParts = map[string]bool{
	"internal/batcher": true, "internal/compaction": true, "internal/manifest": true, "internal/memtable": true,
	"internal/mergeiter": true, "internal/sstable": true, "internal/valuefile": true,
}

// harmless are methods of Engine that return a constant or an atomic.
var harmless = map[string]bool{"Failed": true, "Err": true, "Limits": true, "Descriptor": true, "Recovery": true, "Epoch": true}

// delegates are methods of Engine that only call other methods, which are guarded.
var delegates = map[string]bool{"Put": true, "Delete": true, "DeleteRange": true, "Get": true}

// TestEveryWayIntoTheEngineIsGuarded: after a panic that Guard does not see, a lock may
// stay held for ever while the server continues.
func TestEveryWayIntoTheEngineIsGuarded(t *testing.T) {
	bodies := map[string][]*ast.BlockStmt{} // function bodies, by package and name
	type start struct {
		at token.Position
		f  ast.Expr
		in string
	}
	var starts []start
	entries := 0
	walkGo(t, func(file string, set *token.FileSet, tree *ast.File) {
		dir := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || !guarded[dir] && !engineParts[dir] {
			return
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				bodies[dir+"."+n.Name.Name] = append(bodies[dir+"."+n.Name.Name], n.Body)
				if dir == "internal/engine" && receiver(n) == "Engine" && n.Name.IsExported() {
					entries++
					name := n.Name.Name
					assert.True(t, harmless[name] || delegates[name] || defersGuard(n.Body),
						"%s: Engine.%s does not defer Guard", set.Position(n.Pos()), name)
				}
			case *ast.GoStmt:
				starts = append(starts, start{set.Position(n.Pos()), n.Call.Fun, dir})
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || len(n.Args) == 0 {
					return true
				}
				of, _ := sel.X.(*ast.Ident)
				switch {
				case sel.Sel.Name == "Go" && !(of != nil && of.Name == "helpers" && !guarded[dir]):
					starts = append(starts, start{set.Position(n.Pos()), n.Args[0], dir})
				case sel.Sel.Name == "AfterFunc":
					starts = append(starts, start{set.Position(n.Pos()), n.Args[1], dir})
				}
			}
			return true
		})
	})
	require.Greater(t, entries, 10, "the walk missed the engine")
	require.Greater(t, len(starts), 8, "the walk missed goroutines")
	for _, s := range starts {
		assert.True(t, guardsItself(s.f, s.in, bodies), "%s: a goroutine that does not defer Guard", s.at)
	}
}

// guardsItself reports whether a function defers Guard, or only calls a function that
// does.
func guardsItself(f ast.Expr, dir string, bodies map[string][]*ast.BlockStmt) bool {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name == "cancel" // of a context
	case *ast.FuncLit:
		if defersGuard(f.Body) {
			return true
		}
		for _, s := range f.Body.List {
			switch s := s.(type) {
			case *ast.DeferStmt: // for example one that closes a channel
				if _, builtin := s.Call.Fun.(*ast.Ident); !builtin {
					return false
				}
			case *ast.ExprStmt:
				call, ok := s.X.(*ast.CallExpr)
				if !ok || !guardsItself(call.Fun, dir, bodies) {
					return false
				}
			default:
				return false
			}
		}
		return true
	case *ast.SelectorExpr:
		return slices.ContainsFunc(bodies[dir+"."+f.Sel.Name], defersGuard)
	}
	return false
}

func defersGuard(body *ast.BlockStmt) bool {
	for _, s := range body.List {
		if d, ok := s.(*ast.DeferStmt); ok {
			if sel, ok := d.Call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Guard" {
				return true
			}
		}
	}
	return false
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return ""
	}
	name, _ := star.X.(*ast.Ident)
	return name.Name
}
