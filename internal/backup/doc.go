// Package backup keeps copies of one version of a store, restores them and verifies them.
// Where the files come from is a [Source]: a checkpoint of the engine in this process or
// of a server.
//
// # A directory of backups
//
//	KVD-BACKUPS                      marks the directory: "kvd-backups 1"
//	LOCK                             held by the process that changes the directory
//	20261123T014200.123Z.backup      the manifest of one backup, named by its time
//	files/p-0003-000012.sst.SUM      the files; SUM is the checksum, in hexadecimal
//
// All backups in a directory are of one store. Files with other names are ignored, and are
// never removed.
//
// Backups share files: a file with a name, a length and a checksum that an earlier backup
// has is not copied again. Tables and value files never change, so a backup copies what was
// written since the one before, the manifests of partitions and the log.
//
//	B1. A backup exists if its manifest does. The manifest is written last, by
//	    vfs.WriteAtomic, after its files and their names are synced.
//	B2. A file that a manifest names is never written to and never removed. Files that no
//	    manifest names are left from a backup that was interrupted; the next one uses them
//	    if their contents have the checksum that their names say.
//	B3. Every byte that is copied, to a backup or from one, is compared with its checksum.
//
// # The manifest
//
// Two JSON values: the backup, and the checksum of all bytes before it.
//
//	{
//	 "kvd_backup": 1,
//	 "id": "20261123T014200.123Z",
//	 "store": "0123456789abcdef",
//	 "version": 4711,
//	 "files": [
//	  {
//	   "name": "STORE",
//	   "bytes": 44,
//	   "xxh64": "8b1d2c3e4f506172"
//	  }
//	 ]
//	}
//	{"xxh64":"0123456789abcdef"}
//
// kvd_backup is the version of the format and stays the first field. Only the exact bytes
// that Encode writes are accepted. A golden backup is in testdata/v1.
//
// # The stream
//
// A backup as one stream is a tar archive: the files of the store with their names, then
// the manifest with the name BACKUP. Without it the stream was cut short.
//
// # Restoring
//
// The directory must be empty or new. While it is filled it holds the file RESTORING, so
// that no server takes it for the beginning of a new store. STORE comes last, by
// vfs.WriteAtomic, and then RESTORING goes: a directory with STORE is a whole store.
package backup
