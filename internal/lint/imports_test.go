// Package lint checks rules of this module that a compiler does not: which package may
// import which, and which calls only one package may make.
package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/kvd-db/kvd/"

// floors gives the floor of each package. A package may import packages of lower floors
// only. Within floor 0, trace and kv are below the others.
var floors = map[string]float64{
	"cmd/kvd":         7,
	"cmd/kvbench":     7,
	"scripts/wordnet": 7,
	"scripts/sbom":    7,

	"internal/daemon": 6,

	"internal/service": 5,
	"internal/admin":   5,
	"pkg/kvd":          5,
	"pkg/kvd/embed":    5.5,

	"pkg/kvd/internal/transport": 4.5,
	"pkg/kvd/internal/backend":   4,

	"internal/engine": 4,

	"internal/commit":    3.5,
	"internal/partition": 3,

	"internal/compaction": 2,
	"internal/batcher":    2,
	"internal/admission":  2,
	"internal/inspect":    2,
	"internal/backup":     2,
	"internal/repair":     2,
	"internal/formats":    2,
	"internal/workload":   2,
	"internal/loadgen":    1,
	"internal/chart":      0.5,
	"internal/results":    2,
	"internal/report":     3,
	"internal/experiment": 4,

	"internal/descriptor": 1,
	"internal/memory":     1,

	"internal/memtable":   1,
	"internal/logfile":    0.75,
	"internal/pace":       0.75,
	"internal/wal":        1,
	"internal/raftlog":    1,
	"internal/replica":    2,
	"internal/peer":       2.5,
	"internal/replicated": 4.5,
	"internal/sstable":    1,
	"internal/valuefile":  1,
	"internal/manifest":   1,
	"internal/mergeiter":  1,
	"internal/frame":      1,
	"internal/rawconn":    0.5,

	"internal/verify": 1.5,

	"internal/livefile":    1,
	"internal/certificate": 1.5,
	"internal/auth":        1.5,
	"internal/audit":       1,

	"pkg/kvdpb": 0.5,

	"internal/reason":    0.5,
	"internal/record":    0.5,
	"internal/scanbatch": 0.5,
	"internal/keyhash":   0.5,
	"internal/stripe":    0.5,
	"internal/escape":    0.5,
	"internal/bytesize":  0.5,
	"internal/vfs":       0.5,
	"internal/address":   0.5,
	"internal/event":     0.5,
	"internal/histogram": 0.5,

	"internal/kv":    0.25,
	"internal/trace": 0,
}

// testSupport may import any floor. Only tests import it, except for kvdtest, which
// users import in their own tests.
var testSupport = map[string]bool{
	"internal/lint":                    true,
	"internal/testsize":                true,
	"internal/testsize/reduced":        true,
	"internal/partition/partitiontest": true,
	"internal/pace/pacetest":           true,
	"internal/testwait":                true,
	"internal/testrelay":               true,
	"internal/torture":                 true,
	"internal/torture/kvdbinary":       true,
	"internal/torture/history":         true,
	"pkg/kvd/kvdtest":                  true,
	"scripts/packaging":                true, // nothing but a test
	"pkg/kvd/internal/servertest":      true,
	"pkg/kvd/internal/memlisten":       true,
}

// clientInternals lists the internal packages that a client's build includes. They import
// neither the store nor the server.
var clientInternals = []string{"internal/frame", "internal/rawconn", "internal/stripe"}

// inProcess is what a program imports to have the store in it: its build is that of the
// store, not of a client.
const inProcess = "pkg/kvd/embed"

// clientMayImport lists the modules that a client's build may include, besides the
// standard library and pkg/.
var clientMayImport = []string{
	"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto",
}

// outside lists, for the lower floors, which modules outside the standard library they
// may import. Higher floors may import any.
var outside = map[string][]string{
	"internal/keyhash": {"github.com/cespare/xxhash"},                                         // the hash that the store's descriptor names
	"internal/backup":  {"github.com/cespare/xxhash"},                                         // checksums of whole files
	"internal/vfs":     {"golang.org/x/sys/unix"},                                             // fdatasync, flock, hints to the page cache
	"internal/raftlog": {raftLibrary, "google.golang.org/protobuf/proto"},                     // it stores raft's entries
	"internal/replica": {raftLibrary, "google.golang.org/protobuf/proto"},                     // it drives raft
	"internal/peer":    {raftLibrary, "google.golang.org/grpc", "google.golang.org/protobuf"}, // it carries raft's messages
	"pkg/kvdpb":        {"google.golang.org/grpc", "google.golang.org/protobuf"},
	"internal/frame":   {"google.golang.org/grpc", "google.golang.org/protobuf"}, // what a frame means, and its codec in gRPC
}

// raftLibrary is the consensus library. The store does not know it: what it needs of a
// replicated log it gets through commit.Log.
const raftLibrary = "go.etcd.io/raft/v3"

// replication lists the packages that may import raftLibrary.
var replication = []string{"internal/raftlog", "internal/replica", "internal/replicated", "internal/peer"}

type listedPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	packages, err := listModule()
	require.NoError(t, err, "go list")
	require.NotEmpty(t, packages)
	return packages
}

var listModule = sync.OnceValues(func() (packages []listedPackage, err error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
})

// floorOf returns the floor of a package; a subpackage has the floor of its parent.
func floorOf(name string) (floor float64, owner string, ok bool) {
	for owner = name; owner != "."; {
		if f, found := floors[owner]; found {
			return f, owner, true
		}
		i := strings.LastIndexByte(owner, '/')
		if i < 0 {
			return 0, "", false
		}
		owner = owner[:i]
	}
	return 0, "", false
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func hasPrefix(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if testSupport[name] {
			continue
		}
		floor, owner, ok := floorOf(name)
		if !ok {
			t.Errorf("%s stands on no floor: give it one in this test's table", name)
			continue
		}
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module)
			switch {
			case isStandard(imported):
			case !ours:
				checkOutside(t, name, owner, floor, imported)
			case testSupport[target]:
				t.Errorf("%s imports %s, which is for tests only", name, target)
			default:
				targetFloor, targetOwner, known := floorOf(target)
				if !known {
					t.Errorf("%s imports %s, which stands on no floor", name, target)
				} else if targetFloor >= floor && targetOwner != owner {
					t.Errorf("%s (floor %v) imports %s (floor %v): imports go down only", name, floor, target, targetFloor)
				}
				if strings.HasPrefix(name, "pkg/") && name != inProcess && !strings.HasPrefix(target, "pkg/") && !hasPrefix(target, clientInternals) {
					t.Errorf("%s imports %s: a client's build has pkg/ and %v alone", name, target, clientInternals)
				}
			}
		}
	}
}

func checkOutside(t *testing.T, name, owner string, floor float64, imported string) {
	t.Helper()
	if strings.HasPrefix(name, "pkg/") && !hasPrefix(imported, clientMayImport) {
		t.Errorf("%s imports %s: it would reach every client's build", name, imported)
	}
	if floor <= 4 && !strings.HasPrefix(name, "pkg/") && !hasPrefix(imported, outside[owner]) {
		t.Errorf("%s imports %s: below the service, only the standard library", name, imported)
	}
}

// TestTheStoreDoesNotKnowRaft: engine, partition and all else but the packages of
// replication neither import the consensus library nor, below the daemon, these packages.
func TestTheStoreDoesNotKnowRaft(t *testing.T) {
	users := 0
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if hasPrefix(name, replication) {
			users++
			continue
		}
		floor, _, _ := floorOf(name)
		for _, imported := range p.Imports {
			if hasPrefix(imported, []string{raftLibrary}) {
				t.Errorf("%s imports %s: only %v do", name, imported, replication)
			}
			if target := strings.TrimPrefix(imported, module); floor < floors["internal/daemon"] && !testSupport[name] && hasPrefix(target, replication) {
				t.Errorf("%s imports %s: only the daemon joins the store and replication", name, target)
			}
		}
	}
	require.NotZero(t, users)
}

// TestProtocolsStandAlone: the service knows no protocol, a protocol knows the service
// alone, and the daemon is the one place that names all protocols. So a new protocol
// needs a package of its own and a line in the daemon. Only grpcapi imports another
// protocol: frames also travel in its streams.
func TestProtocolsStandAlone(t *testing.T) {
	const service = "internal/service"
	protocols := 0
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		of, isProtocol := strings.CutPrefix(name, service+"/")
		isProtocol = isProtocol && strings.HasSuffix(of, "api")
		if isProtocol {
			protocols++
		}
		for _, imported := range p.Imports {
			target := strings.TrimPrefix(imported, module)
			if name == service && (hasPrefix(imported, clientMayImport) || hasPrefix(target, []string{"internal/frame", "pkg"})) {
				t.Errorf("%s imports %s: it knows no protocol", name, target)
			}
			if strings.HasPrefix(target, service+"/") && strings.HasSuffix(target, "api") &&
				name != "internal/daemon" && !(name == service+"/grpcapi" && target == service+"/frameapi") {
				t.Errorf("%s imports %s: only the daemon names protocols", name, target)
			}
		}
	}
	require.GreaterOrEqual(t, protocols, 2)
}
