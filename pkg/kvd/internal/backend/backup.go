package backend

import "io"

// Backup is one version of a store as files that do not change until Close. It is used by
// one goroutine. Its errors are as those of a Backend.
type Backup interface {
	Info() BackupInfo
	// Fetch returns the checksum of a file, and its content unless the checksum is among
	// known. The content is read to its end before the next call.
	Fetch(name string, known []uint64) (sum uint64, content io.Reader, err error)
	Close() error
}

// BackupInfo is kvd.BackupInfo.
type BackupInfo struct {
	StoreID uint64
	Version uint64
	Files   []BackupFile
}

// BackupFile is kvd.BackupFile.
type BackupFile struct {
	Name string
	Size int64
}
