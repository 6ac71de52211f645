// Package backup copies one version of a store, file by file. Where the files come from is
// a [Source]: a checkpoint of the engine in this process or of a server.
package backup
