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

	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// reasons returns the constants of a file that name reasons, by their names without the
// prefix.
func reasons(t *testing.T, file, prefix string) map[string]string {
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
		if short, named := strings.CutPrefix(name, prefix); ok && named {
			text, err := strconv.Unquote(value.Value)
			require.NoError(t, err)
			all[short] = text
		}
		return true
	})
	return all
}

// The store and the protos have the same reasons. Package reason does not import the protos,
// and these import no package that a client does not need.
func TestReasonsAreThoseOfTheProtos(t *testing.T) {
	public := reasons(t, "../../../pkg/kvdpb/kvd/v1/reason.go", "Reason")
	require.Greater(t, len(public), 15)
	assert.Equal(t, public, reasons(t, "../../reason/reason.go", ""))
	assert.Equal(t, kvdpb.CauseOpening, service.CauseOpening)
}
