package admin

import (
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvd-db/kvd/internal/admission"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/wal"
)

// All metrics of kvd. Sums of counters over partitions are left to the reader,
// but for batch sizes: a histogram for each partition would be most of the page.
var (
	buildInfo  = describe("kvd_build_info", "What is running; the value is always 1.", "version", "commit", "go")
	goroutines = describe("kvd_goroutines", "Goroutines of the process.")

	requests    = describe("kvd_requests_total", "Finished requests; operations of a pipeline count one by one.", "method", "code")
	shed        = describe("kvd_shed_total", "Connections, calls and operations refused because something was full.", "reason")
	txns        = describe("kvd_txn_total", "Transactions that were evaluated, by outcome.", "outcome")
	panics      = describe("kvd_handler_panics_total", "Request handlers that panicked.")
	refused     = describe("kvd_refused_total", "Calls, connections and operations refused because the client is not known (unauthenticated) or may not do it (denied).", "why")
	quotaOps    = describe("kvd_quota_requests_total", "Operations taken from the quota of an identity; identities beyond the first 200 of the token file count together, without a name.", "identity")
	quotaBytes  = describe("kvd_quota_bytes_total", "Bytes of requests and answers taken from the quota of an identity, likewise.", "identity")
	quotaNo     = describe("kvd_quota_refused_total", "Operations, snapshots and connections that the quota of an identity refused, likewise.", "identity", "quota")
	quotaHeld   = describe("kvd_quota_held", "Open snapshots and connections of an identity with a quota, likewise.", "identity", "quota")
	connections = describe("kvd_connections", "Open client connections.")
	accepted    = describe("kvd_connections_accepted_total", "Client connections accepted.")
	raw         = describe("kvd_raw_connections", "Open client connections that carry raw frames, without gRPC.")
	rawAccepted = describe("kvd_raw_connections_accepted_total", "Client connections accepted that carry raw frames.")
	rawFrames   = describe("kvd_raw_frames_total", "Frames received on raw connections.")
	streams     = describe("kvd_inflight_requests", "Calls being served, by gRPC or in frames; long-lived streams are in kvd_waiting_requests.")
	inflight    = describe("kvd_inflight_bytes", "Memory charged to calls in progress.")
	waiting     = describe("kvd_waiting_requests", "Calls whose request has not arrived, long-lived streams, and raw frames that have arrived in part.")
	waitingSize = describe("kvd_waiting_request_bytes", "Bytes received of incomplete requests.")
	insideOps   = describe("kvd_admission_inside_ops", "Operations being executed by the store.", "kind")
	insideBytes = describe("kvd_admission_inside_bytes", "Bytes of keys and values of the operations being executed, as received.", "kind")
	waitOps     = describe("kvd_admission_waiting_ops", "Operations waiting to be admitted to the store.", "kind")
	waitBytes   = describe("kvd_admission_waiting_bytes", "Bytes of keys and values of the waiting operations, as received.", "kind")
	waitTime    = describe("kvd_admission_wait_seconds", "Waits of store calls that were not admitted at once and were admitted later.", "kind")
	givenUp     = describe("kvd_admission_given_up_total", "Store calls whose deadline passed, or whose caller gave up, while they waited to be admitted.", "kind")
	stageTime   = describe("kvd_request_stage_seconds", "Time of requests in the server, by stage: once for the reads or writes of a frame, and once for each unary call except scans.", "kind", "stage")
	slow        = describe("kvd_slow_requests_total", "Requests that took at least the time limit of the slow log.")
	frameOps    = describe("kvd_frame_ops", "Operations in the frames that clients sent.")

	batchOps      = describe("kvd_batch_ops", "Operations in the write micro-batches of all partitions.")
	batchWait     = describe("kvd_batch_wait_seconds", "Wait of the first operation of a write micro-batch until it was taken, of every 16th in a partition.")
	readBatchOps  = describe("kvd_read_batch_ops", "Keys in the read micro-batches of all partitions.")
	readBatchWait = describe("kvd_read_batch_wait_seconds", "Wait of the first read of a read micro-batch until it was taken, of every 16th in a partition; what memory answers at once does not count.")
	reads         = describe("kvd_reads_total", "Point reads.", "partition")
	readBatches   = describe("kvd_read_batches_total", "Batches that point reads were served in.", "partition")
	queueDepth    = describe("kvd_queue_depth", "Writes waiting in the inbox.", "partition")
	queueBytes    = describe("kvd_queue_bytes", "Bytes of the writes waiting in the inbox.", "partition")
	memtableBytes = describe("kvd_memtable_bytes", "Memory of the memtables, sealed ones included.", "partition")
	levelFiles    = describe("kvd_level_files", "Tables and value files on disk.", "partition", "level")
	levelBytes    = describe("kvd_level_bytes", "Bytes of the tables and value files on disk.", "partition", "level")
	garbage       = describe("kvd_value_garbage_bytes", "Bytes of values in value files that no table refers to.", "partition")
	moved         = describe("kvd_values_moved_bytes_total", "Bytes of values written again to empty value files.", "partition")
	entries       = describe("kvd_table_entries", "Versions of keys in tables, tombstones included.", "partition")
	userBytes     = describe("kvd_user_written_bytes_total", "Bytes of keys and values written by callers.", "partition")
	flushes       = describe("kvd_flushes_total", "Memtables written to a delta.", "partition")
	flushed       = describe("kvd_flush_written_bytes_total", "Bytes of tables written by flushes.", "partition")
	compactions   = describe("kvd_compactions_total", "Compactions finished.", "partition")
	compacted     = describe("kvd_compaction_written_bytes_total", "Bytes of tables written by compactions.", "partition")
	debt          = describe("kvd_compaction_debt_bytes", "Bytes that compactions will have to read.", "partition")

	walSync     = describe("kvd_wal_sync_duration_seconds", "Syncs of the commit log and the time they took.")
	walSyncOps  = describe("kvd_wal_sync_ops", "Writes that a sync of the commit log served, of those that asked for one; an atomic batch is one.")
	walSyncMax  = describe("kvd_wal_sync_longest_seconds", "The longest sync of the commit log so far.")
	walGroups   = describe("kvd_wal_groups_total", "Writes to the commit log, each a group of records.")
	walInGroup  = describe("kvd_wal_group_records", "Records in each write to the commit log: micro-batches and atomic batches.")
	walGroupOps = describe("kvd_wal_group_ops", "Writes in each write to the commit log; an atomic batch is one.")
	walGroupLen = describe("kvd_wal_group_bytes", "Bytes of each write to the commit log, headers included.")
	walRecords  = describe("kvd_wal_records_total", "Records in those groups: micro-batches and atomic batches.")
	walWritten  = describe("kvd_wal_written_bytes_total", "Bytes written to the commit log.")
	walLive     = describe("kvd_wal_bytes", "Bytes of all segments of the commit log.")
	walSegments = describe("kvd_wal_segments", "Segments of the commit log.")
	walTail     = describe("kvd_wal_tail_dropped_bytes", "Bytes that recovery dropped at the end of the commit log; never acknowledged as synced.")

	cacheRequests = describe("kvd_cache_requests_total", "Block reads by whether the cache had the block.", "result")
	cachedValues  = describe("kvd_cache_value_requests_total", "Lookups of values that are stored apart from their keys, by whether the cache had the value.", "result")
	cacheBytes    = describe("kvd_cache_bytes", "Memory of the cache of blocks and values in use.")
	conflicts     = describe("kvd_conflicts_total", "Conditional writes and commits that met a conflicting write and were retried or refused.")
	duplicates    = describe("kvd_dedup_hits_total", "Writes with a request id that had been applied before and were not applied again.")
	snapshots     = describe("kvd_snapshots_open", "Snapshots under lease.")
	checkpoints   = describe("kvd_checkpoints_open", "Backups that are being made. Each keeps the files of its version, which takes space.")
	checkpointAge = describe("kvd_checkpoint_oldest_seconds", "Age of the oldest backup that is being made; 0 if there is none.")
	archived      = describe("kvd_archive_version", "The newest version in the archive of the commit log; absent without --archive.")
	archiveAge    = describe("kvd_archive_age_seconds", "Time since the archive last held everything acknowledged, or since the start; absent without --archive.")
	archiveWaits  = describe("kvd_archive_backlog_bytes", "Bytes of whole segments of the commit log that wait for the archive.")
	archiveErrors = describe("kvd_archive_errors_total", "Attempts to archive the commit log that failed.")
	archiveGaps   = describe("kvd_archive_gaps_total", "Parts of the commit log that the archive lacks, since the start; no restore crosses them.")
	visible       = describe("kvd_visible_sequence_number", "The newest number that every reader sees.")
	memtableLimit = describe("kvd_memtable_limit_bytes", "Budget of all memtables.")
	memtableShed  = describe("kvd_memtable_shed_total", "Writes shed by the store because its memtables were full.")
	pressure      = describe("kvd_write_pressure_ratio", "How far background work is behind: writes slow down above 0 and wait at 2.")
	stalled       = describe("kvd_write_stall_seconds_total", "Time during which writes were slowed.", "reason")
	readOnly      = describe("kvd_readonly", "1 while writes are refused because the disk is nearly full or its file system is read-only.")
	diskFree      = describe("kvd_disk_free_bytes", "Free bytes of the disk with the data directory; 0 before the first measurement.")

	scrubbed   = describe("kvd_scrub_bytes_total", "Bytes of the store's files that scrubs verified.")
	scrubs     = describe("kvd_scrub_passes_total", "Scrubs of all files that came to their end.")
	scrubLast  = describe("kvd_scrub_last_pass_timestamp_seconds", "When the last scrub of all files ended; 0: none has since the start.")
	scrubRatio = describe("kvd_scrub_pass_ratio", "How far the background scrub has come with its pass; 0 between two passes.")

	corruptions = describe("kvd_corruption_total", "Damaged blocks and files detected, counted once per read.")
	damaged     = describe("kvd_damaged_places", "Damaged places of files that reads, merges or scrubs have found since the start and that are still there.")
	background  = describe("kvd_background_errors_total", "Flushes and compactions that failed and are retried.")
	slowDisk    = describe("kvd_disk_slow_total", "Times that the disk did not answer for over a second.")
	setAside    = describe("kvd_files_set_aside_total", "Unknown files moved to lost+found.")
	reloads     = describe("kvd_reload_failures_total", "New certificates, keys, tokens or settings files that could not be used; the old ones are.")
	reloading   = describe("kvd_reload_failing", "1 while old certificates, keys, tokens or settings are in use because the newest files cannot be.")
	auditLost   = describe("kvd_audit_dropped_total", "Events that the audit log lacks, because there were too many or its file failed.")
	pagesNo     = describe("kvd_admin_refused_total", "Requests for admin pages refused because the client is not known or lacks the right.")
	certificate = describe("kvd_tls_certificate_expiry_timestamp_seconds", "When the server's certificate expires.")
	recovery    = describe("kvd_recovery_seconds", "Time that opening the store took.")
)

var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	described = append(described, d)
	return d
}

// collector reads a Source when it is scraped.
type collector struct{ *Source }

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range described {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	s.number(buildInfo, 1, c.Build.Version, c.Build.Commit, c.Build.Go)
	s.number(goroutines, float64(runtime.NumGoroutine()))
	traffic := c.Traffic()
	s.traffic(&traffic)
	incidents := c.Incidents()
	s.incidents(&incidents)
	if stats, open := c.Store(); open {
		s.store(&stats)
		for i := range stats.Partitions {
			s.partition(strconv.Itoa(i), &stats.Partitions[i])
		}
	}
	if m, member := c.Member(); member {
		s.member(&m)
	}
}

// sink turns figures into metrics.
type sink struct{ out chan<- prometheus.Metric }

func (s sink) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sink) number(d *prometheus.Desc, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// flag emits 1 for what holds, and 0.
func (s sink) flag(d *prometheus.Desc, holds bool, labels ...string) {
	v := 0.0
	if holds {
		v = 1
	}
	s.number(d, v, labels...)
}

// time emits seconds since 1970, 0 for no time.
func (s sink) time(d *prometheus.Desc, t time.Time) {
	seconds := 0.0
	if !t.IsZero() {
		seconds = float64(t.Unix())
	}
	s.number(d, seconds)
}

// micros and nanos are so many in a second.
const (
	micros = 1e6
	nanos  = 1e9
)

// powers emits a histogram of what was counted in parts of the metric's unit, so many
// of them, with a bucket for each power of two from 2^least to 2^most parts.
func (s sink) powers(d *prometheus.Desc, c *histogram.PowerCounts, parts float64, least, most int, labels ...string) {
	counts := slices.Clone(c.Buckets[least : most+1])
	for _, n := range c.Buckets[:least] {
		counts[0] += n
	}
	s.doubling(d, float64(uint64(1)<<least)/parts, counts, c.Count(), float64(c.Sum)/parts, labels...)
}

// doubling emits a histogram. Its counts are of what is at most first, at most twice
// that, and so on, and in none before; the total has what is above the last, too.
func (s sink) doubling(d *prometheus.Desc, first float64, counts []uint64, total uint64, sum float64, labels ...string) {
	buckets := make(map[float64]uint64, len(counts))
	below := uint64(0)
	for _, n := range counts {
		below += n
		buckets[first] = below
		first *= 2
	}
	s.out <- prometheus.MustNewConstHistogram(d, total, sum, buckets, labels...)
}

func (s sink) traffic(t *Traffic) {
	for _, r := range t.Requests {
		s.counter(requests, r.Count, r.Method, r.Code)
	}
	for reason, n := range t.Shed {
		s.counter(shed, n, reason)
	}
	for outcome, n := range t.Transactions {
		s.counter(txns, n, outcome)
	}
	s.counter(panics, t.Panics)
	s.counter(refused, t.Unauthenticated, "unauthenticated")
	s.counter(refused, t.Denied, "denied")
	s.quotas(t.Quotas)
	s.counter(slow, t.Slow)
	s.number(connections, float64(t.Connections))
	s.counter(accepted, t.Accepted)
	s.number(raw, float64(t.Raw))
	s.counter(rawAccepted, t.RawAccepted)
	s.counter(rawFrames, t.RawFrames)
	s.number(streams, float64(t.Streams))
	s.number(inflight, float64(t.Bytes))
	s.number(waiting, float64(t.Waiting))
	s.number(waitingSize, float64(t.WaitingBytes))
	for kind, g := range t.Gates {
		s.gate(kind, &g)
	}
	s.powers(frameOps, &t.Frames, 1, 0, 9) // and what is above, up to frame.MaxOps
	for _, st := range t.Stages {
		s.powers(stageTime, &st.Nanos, nanos, 10, 30, st.Kind, st.Stage)
	}
}

func (s sink) quotas(all []auth.NamedUsage) {
	for i := range all {
		u := &all[i]
		s.counter(quotaOps, u.Requests, u.Name)
		s.counter(quotaBytes, u.Bytes, u.Name)
		for r, n := range u.Refused {
			s.counter(quotaNo, n, u.Name, auth.Resource(r).String())
		}
		s.number(quotaHeld, float64(u.Snapshots), u.Name, auth.Snapshots.String())
		s.number(quotaHeld, float64(u.Connections), u.Name, auth.Connections.String())
	}
}

func (s sink) gate(kind string, g *admission.Stats) {
	s.number(insideOps, float64(g.Inside.Ops), kind)
	s.number(insideBytes, float64(g.Inside.Bytes), kind)
	s.number(waitOps, float64(g.Waiting.Ops), kind)
	s.number(waitBytes, float64(g.Waiting.Bytes), kind)
	s.counter(givenUp, g.GivenUp, kind)
	s.doubling(waitTime, admission.FirstWait.Seconds(), g.Waits[:len(g.Waits)-1], g.Admitted, g.WaitTime.Seconds(), kind)
}

func (s sink) incidents(n *Incidents) {
	s.counter(corruptions, n.Corruptions)
	s.number(damaged, float64(n.DamagedPlaces))
	s.counter(background, n.BackgroundErrors)
	s.counter(slowDisk, n.SlowDisk)
	s.counter(setAside, n.FilesSetAside)
	s.number(walTail, float64(n.TailDropped))
	s.number(recovery, n.Recovery.Seconds())
	s.counter(reloads, n.ReloadFailures)
	s.flag(reloading, n.ReloadFailing)
	s.counter(auditLost, n.AuditDropped)
	s.counter(pagesNo, n.PagesRefused)
	if !n.CertificateEnds.IsZero() {
		s.number(certificate, float64(n.CertificateEnds.Unix()))
	}
	for reason, d := range n.Stalled {
		s.out <- prometheus.MustNewConstMetric(stalled, prometheus.CounterValue, d.Seconds(), reason)
	}
}

func (s sink) store(st *engine.Stats) {
	s.batches(st.Partitions)
	s.log(&st.Log)
	s.counter(cacheRequests, st.Cache.Hits, "hit")
	s.counter(cacheRequests, st.Cache.Misses, "miss")
	s.counter(cachedValues, st.Cache.ValueHits, "hit")
	s.counter(cachedValues, st.Cache.ValueMisses, "miss")
	s.number(cacheBytes, float64(st.Cache.Bytes))
	s.counter(conflicts, st.Conflicts)
	s.counter(duplicates, st.Duplicates)
	s.number(snapshots, float64(st.Snapshots))
	s.number(checkpoints, float64(st.Checkpoints))
	if a := st.Archive; a != nil {
		s.number(archived, float64(a.Version))
		s.number(archiveAge, time.Since(a.Time).Seconds())
		s.number(archiveWaits, float64(a.Backlog))
		s.counter(archiveErrors, a.Errors)
		s.counter(archiveGaps, a.Gaps)
	}
	s.number(checkpointAge, st.CheckpointAge.Seconds())
	s.scrubs(&st.Scrubs)
	s.number(visible, float64(st.Visible))
	s.number(memtableLimit, float64(st.MemtableLimit))
	s.counter(memtableShed, st.Shed)
	s.number(pressure, st.Pressure)
	s.number(diskFree, float64(st.DiskFree))
	s.flag(readOnly, st.ReadOnly)
}

func (s sink) scrubs(st *engine.ScrubStats) {
	s.counter(scrubbed, st.Bytes)
	s.counter(scrubs, st.Passes)
	s.time(scrubLast, st.Last)
	s.number(scrubRatio, float64(st.Done)/float64(max(st.Total, 1)))
}

// batches emits what the micro-batches of all partitions have in common.
func (s sink) batches(partitions []engine.PartitionStats) {
	var sum engine.PartitionStats
	for i := range partitions {
		p := &partitions[i]
		sum.Writes.Add(&p.Writes)
		sum.Reads.Add(&p.Reads)
		sum.WriteWaits.Add(&p.WriteWaits)
		sum.ReadWaits.Add(&p.ReadWaits)
	}
	s.powers(batchOps, &sum.Writes, 1, 0, 12)
	s.powers(readBatchOps, &sum.Reads, 1, 0, 12)
	s.powers(batchWait, &sum.WriteWaits, micros, 0, 20)
	s.powers(readBatchWait, &sum.ReadWaits, micros, 0, 20)
}

func (s sink) log(l *wal.Stats) {
	s.powers(walSync, &l.SyncMicros, micros, 4, 24)
	s.number(walSyncMax, l.SyncMax.Seconds())
	s.powers(walSyncOps, &l.SyncUnits, 1, 0, 16)
	s.powers(walInGroup, &l.FrameRecords, 1, 0, 12)
	s.powers(walGroupOps, &l.FrameUnits, 1, 0, 16)
	s.powers(walGroupLen, &l.FrameBytes, 1, 6, 24)
	s.counter(walGroups, l.Frames)
	s.counter(walRecords, l.Records)
	s.counter(walWritten, l.Bytes)
	s.number(walLive, float64(l.LiveBytes))
	s.number(walSegments, float64(l.Segments))
}

func (s sink) partition(id string, p *engine.PartitionStats) {
	s.counter(reads, p.Reads.Sum, id)
	s.counter(readBatches, p.Reads.Count(), id)
	s.number(queueDepth, float64(p.QueueOps), id)
	s.number(queueBytes, float64(p.QueueBytes), id)
	s.number(memtableBytes, float64(p.ActiveBytes+p.SealedBytes), id)
	s.number(levelFiles, float64(p.DeltaTables), id, "delta")
	s.number(levelFiles, float64(p.BaseTables), id, "base")
	s.number(levelBytes, float64(p.DeltaBytes), id, "delta")
	s.number(levelBytes, float64(p.BaseBytes), id, "base")
	s.number(levelFiles, float64(p.ValueFiles), id, "values")
	s.number(levelBytes, float64(p.ValueBytes), id, "values")
	s.number(garbage, float64(p.Garbage), id)
	s.counter(moved, p.MovedBytes, id)
	s.number(entries, float64(p.Entries), id)
	s.counter(userBytes, p.UserBytes, id)
	s.counter(flushes, p.Flushes, id)
	s.counter(flushed, p.FlushedBytes, id)
	s.counter(compactions, p.Compactions, id)
	s.counter(compacted, p.CompactedBytes, id)
	s.number(debt, float64(p.Debt), id)
}
