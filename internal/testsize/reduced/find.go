package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	testsizePath = "github.com/kvd-db/kvd/internal/testsize"
	rapidPath    = "pgregory.net/rapid"
)

// sampled stands for what repeats less under the race detector; it is not a name in Go.
const sampled = "testsize.Reduced or rapid.Check"

// repeats lists the functions of rapid that draw cases.
var repeats = map[string]bool{"Check": true, "MakeCheck": true, "MakeFuzz": true}

type selection struct {
	tests    []string // names of tests, sorted
	packages []string // as arguments of go test, sorted
}

// find returns the reduced tests of all packages in root and below, without other modules.
func find(root string) (selection, error) {
	dirs := make(map[string]*directory)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipDir(root, path)
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := dirs[filepath.Dir(path)]
		if dir == nil {
			dir = new(directory)
			dirs[filepath.Dir(path)] = dir
		}
		dir.asksRace = dir.asksRace || asksRace(file)
		if strings.HasSuffix(path, "_test.go") {
			dir.testFiles = append(dir.testFiles, file)
			return nil
		}
		return testFilesAlone(path, file)
	})
	if err != nil {
		return selection{}, err
	}
	tests := make(map[string]bool)
	var packages []string
	for path, dir := range dirs {
		reduced, err := dir.reducedTests()
		if err != nil {
			return selection{}, fmt.Errorf("%s: %w", path, err)
		}
		if len(reduced) > 0 {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return selection{}, err
			}
			packages = append(packages, "./"+filepath.ToSlash(rel))
		}
		for _, name := range reduced {
			tests[name] = true
		}
	}
	if len(packages) == 0 {
		return selection{}, errors.New("no test is reduced: is this the top directory of the module?")
	}
	slices.Sort(packages)
	return selection{tests: slices.Sorted(maps.Keys(tests)), packages: packages}, nil
}

// skipDir leaves out what go test ./... leaves out.
func skipDir(root, path string) error {
	if path == root {
		return nil
	}
	name := filepath.Base(path)
	if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	switch _, err := os.Stat(filepath.Join(path, "go.mod")); {
	case err == nil:
		return filepath.SkipDir
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

// testFilesAlone refuses what reducedTests would not see: a sample that is taken outside of
// test files.
func testFilesAlone(path string, file *ast.File) error {
	for _, forTests := range []string{testsizePath, rapidPath} {
		if imports(file, forTests) && file.Name.Name != "testsize" {
			return fmt.Errorf("%s imports %s, which only test files may", path, forTests)
		}
	}
	return nil
}

func imports(file *ast.File, path string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool {
		value, err := strconv.Unquote(spec.Path.Value)
		return err == nil && value == path
	})
}

// asksRace reports whether it depends on the race detector that file is built at all.
func asksRace(file *ast.File) (asks bool) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if comment.Pos() > file.Package || !constraint.IsGoBuild(comment.Text) {
				continue
			}
			if expr, err := constraint.Parse(comment.Text); err == nil {
				expr.Eval(func(tag string) bool { asks = asks || tag == "race"; return true })
			}
		}
	}
	return asks
}

type directory struct {
	testFiles []*ast.File
	asksRace  bool // of any file
}

// reducedTests returns the names of the tests, fuzz tests and examples of the directory
// that do not run whole under the race detector.
func (d *directory) reducedTests() ([]string, error) {
	if !d.asksRace && !slices.ContainsFunc(d.testFiles, func(f *ast.File) bool { return imports(f, testsizePath) }) {
		return nil, nil
	}
	mentions := make(map[string]map[string]bool) // declared name: names that its declaration has
	declare := func(name string, node ast.Node) {
		if mentions[name] == nil {
			mentions[name] = make(map[string]bool)
		}
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				mentions[name][n.Name] = true
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && (pkg.Name == "testsize" || pkg.Name == "rapid" && repeats[n.Sel.Name]) {
					mentions[name][sampled] = true
				}
			}
			return true
		})
	}
	for _, file := range d.testFiles {
		for _, spec := range file.Imports {
			renamed := spec.Name != nil && spec.Name.Name != "_"
			if renamed && (spec.Path.Value == strconv.Quote(testsizePath) || spec.Path.Value == strconv.Quote(rapidPath)) {
				return nil, fmt.Errorf("import of %s by another name", spec.Path.Value)
			}
		}
		for _, decl := range file.Decls {
			declareAll(decl, declare)
		}
	}

	reaches := map[string]bool{sampled: true}
	for grown := true; grown; {
		grown = false
		for name, mentioned := range mentions {
			if reaches[name] {
				continue
			}
			for other := range mentioned {
				if reaches[other] {
					reaches[name], grown = true, true
					break
				}
			}
		}
	}
	all := d.asksRace || reaches["TestMain"] || reaches["init"] || reaches["_"]
	var tests []string
	for name := range mentions {
		if isTest(name) && (all || reaches[name]) {
			tests = append(tests, name)
		}
	}
	return tests, nil
}

// declareAll passes each name that decl declares, with the syntax that it stands for, to
// declare. A method belongs to its type, too: whoever has a value of the type may have it
// called through an interface, without its name.
func declareAll(decl ast.Decl, declare func(name string, node ast.Node)) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		declare(decl.Name.Name, decl)
		if decl.Recv != nil {
			declare(receiver(decl.Recv.List[0].Type), decl)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				declare(spec.Name.Name, spec)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					declare(name.Name, decl)
				}
			}
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(expr ast.Expr) string {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		default:
			return e.(*ast.Ident).Name
		}
	}
}

func isTest(name string) bool {
	if name == "TestMain" {
		return false
	}
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}
