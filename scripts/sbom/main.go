// Command sbom prints the software bill of materials of a Go binary as SPDX 2.3 in JSON: the
// modules that the toolchain recorded in it. The same binary gives the same bytes.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY > FILE.spdx.json")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary string, w io.Writer) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	sum, err := checksum(binary)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(describe(filepath.Base(binary), sum, info))
}

func checksum(name string) (sum string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// document has the properties of SPDX 2.3 that it requires, and those that tell a reader what
// is in the binary.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	Name          string      `json:"name"`
	ID            string      `json:"SPDXID"`
	Version       string      `json:"versionInfo"`
	Location      string      `json:"downloadLocation"`
	FilesAnalyzed bool        `json:"filesAnalyzed"`
	Purpose       string      `json:"primaryPackagePurpose"`
	Declared      string      `json:"licenseDeclared"`
	Copyright     string      `json:"copyrightText"`
	Checksums     []sum       `json:"checksums,omitempty"`
	Comment       string      `json:"comment,omitempty"`
	References    []reference `json:"externalRefs,omitempty"`
}

type sum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const documentID, binaryID = "SPDXRef-DOCUMENT", "SPDXRef-Binary"

// noAssertion says that the document does not say.
const noAssertion = "NOASSERTION"

// describe returns the document of a binary. Its time is that of the commit, so that it is the
// same each time.
func describe(name, sha string, info *debug.BuildInfo) document {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	created := settings["vcs.time"]
	if created == "" {
		created = "1970-01-01T00:00:00Z"
	}
	platform := settings["GOOS"] + "/" + settings["GOARCH"]
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: name + " " + info.Main.Version + " " + platform,
		Namespace: "https://" + info.Main.Path + "/spdx/" + name + "-" + sha,
		Creation:  creation{created, []string{"Tool: " + info.Main.Path + "/scripts/sbom"}},
		Packages: []pkg{{
			Name: name, ID: binaryID, Version: info.Main.Version, Location: noAssertion, Purpose: "APPLICATION",
			Declared: "Apache-2.0", Copyright: noAssertion, Checksums: []sum{{"SHA256", sha}},
			Comment:    fmt.Sprintf("%s, commit %s, built for %s", info.Path, settings["vcs.revision"], platform),
			References: purl("golang/"+info.Main.Path, info.Main.Version),
		}},
		Relationships: []relationship{{documentID, "DESCRIBES", binaryID}},
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	d.add(pkg{Name: "stdlib", Version: goVersion, Location: "https://go.dev/dl/", References: purl("golang/stdlib", goVersion)})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.add(pkg{
			Name: m.Path, Version: m.Version, Location: noAssertion, // the reference below names the module
			Comment: "go.sum " + m.Sum, References: purl("golang/"+m.Path, m.Version),
		})
	}
	return d
}

// add adds a module that the binary consists of.
func (d *document) add(p pkg) {
	p.ID = fmt.Sprintf("SPDXRef-Package-%d", len(d.Packages))
	p.Purpose, p.Declared, p.Copyright = "LIBRARY", noAssertion, noAssertion
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, relationship{binaryID, "DEPENDS_ON", p.ID})
}

func purl(path, version string) []reference {
	return []reference{{"PACKAGE-MANAGER", "purl", "pkg:" + path + "@" + version}}
}
