// Package auth knows who may do what: identities, their rights, and the file that lists them.
// It decides about keys and ranges; package service asks it about each operation.
//
// # Identities
//
// A client is known by a token or by the certificate of its TLS connection; a token takes
// precedence. A token is "kvd1.ID.SECRET", with 64 random bits as ID and 256 as SECRET. The
// file has the SHA-256 of the whole token. No salt and no slow hash is needed, since a token
// is no password that could be guessed.
//
// A certificate is known by its one URI, as uri:kvd:app, or, if it has no URI, by its one DNS
// name, as dns:app.example, or its common name, as cn:app, in this order. A certificate with
// several URIs has no identity. The names are compared exactly, DNS names without regard to
// case. A name without one of these prefixes is a URI, or, after CN=, a common name: files have
// those that are older than the prefixes.
//
// # Rights
//
//	read PREFIX   gets, scans, what a transaction reads, conditions, returned previous items
//	write PREFIX  puts and deletes, of keys and ranges
//	admin         the administrative calls, such as the slow log, which shows keys, and
//	              backups, which hold all data; gets and scans need a right to read, too
//
//	monitor       the admin pages with metrics and the status, for Prometheus and the like;
//	              admin has it, too, and the profiles
//
// A right counts for the keys that begin with its prefix, and for ranges within it: an open
// end is within the empty prefix alone. Rights only add up; a range is not divided among
// several prefixes.
//
// # Quotas
//
// A quota bounds what all identities of one name use together: a rate of operations and one
// of bytes, snapshots and connections. The identities of one name have the same quota. A rate
// is a token bucket: what it allows is saved up for the burst, a second by default. Whatever
// costs more than a full bucket needs a full one, and what follows waits for the rest, though
// for an hour at most. An answer whose size is not known before is taken if nothing is owed,
// whatever its size ([Usage.TakeAnswer]); what follows waits. So what is taken in some time exceeds
// what the rate allows in it, and the burst, by less than one answer. A changed quota counts as
// soon as the file does, and its buckets begin full; what is held stays held.
//
// An identity without a quota has no [Usage], and costs a comparison with nil.
//
// # The file, format version 2
//
//	{
//	  "version": 2,
//	  "identities": [
//	    {"name": "app", "token": {"id": "16 hex digits", "sha256": "64 hex digits"},
//	     "created": "2026-01-02T03:04:05Z", "expires": "2027-01-02T03:04:05Z",
//	     "read": ["user/"], "write": ["user/"],
//	     "quota": {"max_requests": "1000/s", "max_bytes": "10MiB/s", "burst": "2s",
//	               "max_snapshots": 10, "max_connections": 20}},
//	    {"name": "ops", "certificate": "uri:kvd:ops", "read": [""], "admin": true}
//	  ]
//	}
//
// A prefix is text in which \xNN stands for a byte and \\ for a backslash. Unknown fields are
// errors: a misspelt right must not be ignored. The file is read again within seconds of a
// change (see package livefile), and connections that are open have their new rights then.
// The file is refused if users other than its owner may write to it. Version 1 has no quotas and
// no monitors, and is written if there are none, so that an older kvd reads the file.
package auth
