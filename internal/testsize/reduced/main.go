// Command reduced prints which tests take a sample under the race detector: the regular
// expression that selects them by name, and in the next line the packages that they lie in.
// scripts/test.sh runs these tests again, whole; it has run every other test already.
//
// A test is printed if it can reach testsize.Reduced, or a property test of rapid in a
// package that imports testsize (testsize has those reduced, too), through what the test
// files of its package declare. The search goes by names alone: whatever mentions a name
// reaches every declaration of that name, be it a function, a method, a variable or a type.
// So it finds too many tests rather than too few. All tests of a package are printed if it
// has a file whose build constraint asks for the race detector. Files that are not test files must not
// import testsize or rapid, since the search does not look there.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	found, err := find(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "reduced:", err)
		os.Exit(1)
	}
	fmt.Printf("^(%s)$\n%s\n", strings.Join(found.tests, "|"), strings.Join(found.packages, " "))
}
