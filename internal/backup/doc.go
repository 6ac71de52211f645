// Package backup keeps copies of one version of a store and of its log, restores them and
// verifies them. Where the files of a backup come from is a [Source]: a checkpoint of the
// engine in this process or of a server. An [Archiver] copies the log.
//
// # A directory of backups
//
//	KVD-BACKUPS                      marks the directory: "kvd-backups 1"
//	LOCK                             held by the process that changes the directory
//	20261123T014200.123Z.backup      the manifest of one backup, named by its time
//	files/p-0003-000012.sst.SUM      the files; SUM is the checksum, in hexadecimal
//
// All backups in a directory are of one store. Files with other names are ignored, and are
// never removed; but a prune removes the manifest that a killed backup left as ID.backup.tmp.
//
// Backups share files: a file with a name, a length and a checksum that an earlier backup
// has, and still has the contents for, is not copied again. Tables and value files never
// change, so a backup copies what was written since the one before, the manifests of
// partitions and the log.
//
//	B1. A backup exists if its manifest does. The manifest is written last, by
//	    vfs.WriteAtomic, after its files and their names are synced.
//	B2. A file that a manifest names is never written to and never removed, unless its
//	    contents no longer have the checksum that its name says, and the source has that
//	    file: then it is copied again, for all backups that share it. Files that no manifest
//	    names are left from a backup that was interrupted. The next one uses files of both
//	    kinds only if their contents have that checksum.
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
// kvd_backup is the version of the format and stays the first field. Version 2 has a digest of
// the contents after the version of the store. Only the exact bytes that Encode writes are
// accepted. Golden manifests are in testdata/v1 and testdata/v2, a golden backup in testdata/v1.
//
// Files are copied, and not linked, also on one file system: a server writes to no path that a
// client gives, and a client cannot read the server's files; and a linked file would share
// its damage with the store.
//
// # The stream
//
// A backup as one stream is a tar archive: the files of the store with their names, then
// the manifest with the name BACKUP. Without it the stream was cut short.
//
// # An archive
//
// An archive holds the log of one store, in pieces. With a backup, it restores any version
// from that of the backup up to the end of the archive.
//
//	KVD-ARCHIVE                  marks the directory: "kvd-archive 1"
//	LOCK                         held by the server that writes to it
//	000042-0000000064.frames     frames of segment 42 of the log, from offset 64 on
//	000042-0000000064.piece      describes them
//
// A piece holds what was synced of one segment since the piece before: the rest of a segment
// that has ended, or what there is of the last one. It is a copy and no hard link, since the
// header of a segment changes when the log is closed, and because damage of the store should
// not damage the archive. The header is not in it: the description says what it says.
//
//	P1. A piece exists if its description does. That is written by vfs.WriteAtomic, after the
//	    frames were synced, read back and compared with their checksum, and their name is synced.
//	P2. A piece holds only frames that no crash can take from the log, and that never change
//	    in it. So the pieces of one store do not contradict each other.
//	P3. Nothing is missing between a piece and the next one, or the next one says why: its
//	    segment, offset and "after" do not continue the piece before. No restore crosses that.
//
// The description is JSON like a manifest:
//
//	{
//	 "kvd_archive": 1,
//	 "store": "0123456789abcdef",
//	 "epoch": "fedcba9876543210",
//	 "segment": 42,
//	 "previous": 41,
//	 "from": 64,
//	 "to": 4096,
//	 "ends": false,
//	 "after": 4711,
//	 "version": 4720,
//	 "xxh64": "8b1d2c3e4f506172",
//	 "time": "2026-11-23T01:42:00.123Z",
//	 "until": "2026-11-23T01:42:00.123Z",
//	 "clock": 1795398130123,
//	 "marks": [
//	  "2026-11-23T01:41:58.004Z 4715"
//	 ]
//	}
//	{"xxh64":"0123456789abcdef"}
//
// [Piece] says what the fields mean. The log has no times; the marks lead from a time to a
// version: once a second, the server notes the version that readers see, also while it cannot
// write to the archive. A piece of version 2, which the server writes if it has to, may have more
// than 4,096 marks. Golden descriptions are in testdata/v1 and testdata/v2.
//
// # Receiving
//
// [Receive] copies a checkpoint of another node of a cluster into the directory incoming of a
// data directory, with the names that its files have in a store. The manifest of what was
// received, incoming/COMPLETE, has the format of that of a backup. It is written last, by
// vfs.WriteAtomic, after all files and their names are synced, and removed first. So what
// [Incoming] finds is whole. An attempt that was interrupted is continued file by file.
//
// [Installed.Install] puts the partitions of what was received in the place of those of the
// store: it moves each file to its place, removes the others there, syncs the directories, and
// then removes incoming, the manifest first. Until that is gone Install can be repeated: a listed
// file that is no longer in incoming has moved. The caller decides that it is installed, by
// something that is durable before: see package replicated.
//
// # Restoring
//
// The directory must be empty or new. While it is filled it holds the file RESTORING, so
// that no server takes it for the beginning of a new store. STORE comes last, by
// vfs.WriteAtomic, and then RESTORING goes: a directory with STORE is a whole store.
//
// With an archive, the frames of the pieces take the place of the last segment of the backup,
// with which they must agree, and follow it. The log then ends after a version: of a record
// that has this version in its middle the later units are left out, and the header of the
// last segment says where the log ends, as in a backup. Then the log is read and verified
// like that of a store. When the store is opened, it replays its log as after a crash.
package backup
