package grpcapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reasons returns the constants of a file that name reasons.
func reasons(t *testing.T, file string) map[string]string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	all := map[string]string{}
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := spec.Names[0].Name
		value, ok := spec.Values[0].(*ast.BasicLit)
		if ok && (strings.HasPrefix(name, "Reason") || name == "CauseOpening") {
			text, err := strconv.Unquote(value.Value)
			require.NoError(t, err)
			all[name] = text
		}
		return true
	})
	return all
}

// The service and the protos have the same reasons. The service does not import the protos.
func TestReasonsAreThoseOfTheProtos(t *testing.T) {
	public := reasons(t, "../../../pkg/kvdpb/kvd/v1/reason.go")
	require.Greater(t, len(public), 15)
	assert.Equal(t, public, reasons(t, "../errors.go"))
}
