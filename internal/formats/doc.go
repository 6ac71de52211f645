// Package formats knows the format version of every file of a store: which versions a store
// has, which this kvd reads, and which it writes.
//
// # What a store needs
//
// The version in STORE says what a kvd needs to open the store. A release that writes a file
// in a format that earlier releases cannot read raises it first: the new STORE is durable
// before the first such file exists. So an earlier release refuses the store by STORE alone,
// before it has changed anything. A release reads every earlier version, and raises that of
// an existing store only when kvd upgrade asks for it, so that the earlier release can be
// used again until then.
//
// There is one version of STORE so far, 1. The formats of files beneath it are those of
// [Kinds]; their older versions come from before the first release.
//
// As a second line of defence [Check] looks at the version of every file before a store is
// opened.
package formats
