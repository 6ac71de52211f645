package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/admission"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/histogram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is a source in which every figure is there and most differ.
func sample() *Source {
	stats := engine.Stats{Partitions: make([]engine.PartitionStats, 2), MemtableLimit: 1 << 20, DiskFree: 3 << 30, Snapshots: 4, Checkpoints: 2, CheckpointAge: time.Minute, Pressure: 0.5}
	stats.Archive = &backup.ArchiveStatus{Version: 7, Time: time.Now(), Backlog: 8, Errors: 9, Gaps: 10}
	stats.Log.Syncs, stats.Log.SyncTime, stats.Log.Records = 5, 2*time.Second, 6
	for _, micros := range []uint64{10, 100, 1_000, 998_890, 1_000_000} {
		stats.Log.SyncMicros.Record(micros)
	}
	stats.Log.SyncUnits.Record(70)
	stats.Log.FrameRecords.Record(3)
	stats.Log.FrameUnits.Record(40)
	stats.Log.FrameBytes.Record(5000)
	stats.Cache.Hits, stats.Cache.Misses = 7, 8
	stats.Cache.ValueHits, stats.Cache.ValueMisses = 9, 10
	p := &stats.Partitions[0]
	for _, ops := range []uint64{1, 16, 2048} {
		p.Writes.Record(ops)
	}
	p.Reads.Record(9)
	stats.Partitions[1].Reads.Record(2)
	p.WriteWaits.Record(50)
	p.ReadWaits.Record(0)
	p.QueueOps, p.ActiveBytes, p.SealedBytes, p.DeltaBytes, p.BaseTables = 10, 11, 12, 13, 14
	return &Source{
		Build:  Build{Version: "1.2.3", Commit: "abc", Go: "go1.26", Started: time.Now().Add(-time.Hour)},
		Store:  func() (engine.Stats, bool) { return stats, true },
		Member: func() (Member, bool) { return sampleMember(), true },
		Traffic: func() Traffic {
			return Traffic{
				Requests: []RequestCount{{"Get", "OK", 20}, {"Get", "NotFound", 21}},
				Shed:     map[string]uint64{"streams": 22}, Connections: 23, Bytes: 24,
				Transactions: map[string]uint64{"commit": 25, "conflict": 26},
				Gates: map[string]admission.Stats{"reads": {
					Inside: admission.Size{Ops: 40, Bytes: 41}, Waiting: admission.Size{Ops: 42, Bytes: 43},
					Admitted: 6, WaitTime: 3 * time.Second, Waits: [11]uint64{1, 0, 2, 10: 3}, GivenUp: 44,
				}},
				Frames: histogram.PowerCounts{Buckets: [histogram.PowerBuckets]uint64{0: 1, 2: 1, 10: 1}, Sum: 9}, Raw: 27, RawAccepted: 28, RawFrames: 29,
				Slow:   45,
				Quotas: []auth.NamedUsage{{Name: "app", UsageCounts: auth.UsageCounts{Requests: 50, Bytes: 51, Snapshots: 52, Connections: 53}}, {}},
				Stages: []StageTimes{stageTimes("reads", "engine", 900, 1_500, 40_000), stageTimes("writes", "sync", 3_000_000_000)},
			}
		},
		Incidents: func() Incidents {
			return Incidents{Corruptions: 30, TailDropped: 31, Recovery: time.Second, CertificateEnds: time.Now(), Stalled: map[string]time.Duration{"deltas": time.Minute}}
		},
		Checks: func() []Check { return []Check{{Name: "open"}, {Name: "writes", Note: "slow today"}} },
		Alive:  func() error { return nil },
		Facts:  []Fact{{"durability", "sync"}, {"settings", ""}},
	}
}

// sampleMember is a leader with a follower that lags and a learner.
func sampleMember() Member {
	m := Member{
		Role: "leader", Leader: 1, Term: 60, Last: 70, Committed: 65, Applied: 64, Lags: map[uint64]uint64{2: 20, 3: 70},
		NeedCheckpoints: map[uint64]bool{2: false, 3: true},
		Proposals:       map[string]uint64{"committed": 71, "dropped": 72, "uncertain": 73},
		Elections:       74, LeaderChanges: 75, Tenures: 76, Refused: 87,
		HandOvers:   map[string]uint64{"slow_disk": 94, "full_disk": 95},
		Comparisons: map[string]uint64{"same": 90, "differ": 91}, Compared: time.Unix(92, 0), ComparedVersion: 93,
		Peers: []Peer{{
			Node: 2, Connected: true, Lanes: []Lane{{"small", 80, 0}, {"appends", 81, 82}}, Sent: 83, SentBytes: 84, Received: 85, NotTaken: 86,
			SentFileBytes: 96,
		}, {Node: 3}},
	}
	m.Rounds.Record(3)
	return m
}

func TestANodeWithoutALeaderAndNoNode(t *testing.T) {
	s := sample()
	s.Member = func() (Member, bool) { return Member{Role: "candidate"}, true }
	_, page := get(t, s, "/metrics")
	assert.Contains(t, page, "kvd_cluster_role{role=\"candidate\"} 1")
	assert.NotContains(t, page, "\nkvd_cluster_leader{")
	assert.NotContains(t, page, "\nkvd_cluster_follower_lag_entries{")
	assert.NotContains(t, page, "\nkvd_cluster_follower_needs_checkpoint{")
	s.Member = func() (Member, bool) { return Member{}, false }
	_, page = get(t, s, "/metrics")
	assert.NotContains(t, page, "kvd_cluster_")
}

func stageTimes(kind, stage string, nanos ...uint64) StageTimes {
	s := StageTimes{Kind: kind, Stage: stage}
	for _, n := range nanos {
		s.Nanos.Record(n)
	}
	return s
}

func get(t *testing.T, s *Source, target string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(s, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w.Code, w.Body.String()
}

func TestMetricsKeepTheRulesOfPrometheus(t *testing.T) {
	families, err := Registry(sample()).Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	for _, f := range families {
		assert.NotEmpty(t, f.GetHelp(), f.GetName())
	}
}

func TestEveryDescribedMetricIsThere(t *testing.T) {
	_, page := get(t, sample(), "/metrics")
	for _, d := range described {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		assert.Contains(t, page, "# TYPE "+name+" ", "described, but never collected")
	}
}

func TestMetricsSayWhatTheSourceSays(t *testing.T) {
	const want = `
# HELP kvd_requests_total Finished requests; operations of a pipeline count one by one.
# TYPE kvd_requests_total counter
kvd_requests_total{code="NotFound",method="Get"} 21
kvd_requests_total{code="OK",method="Get"} 20
# HELP kvd_frame_ops Operations in the frames that clients sent.
# TYPE kvd_frame_ops histogram
kvd_frame_ops_bucket{le="1"} 1
kvd_frame_ops_bucket{le="2"} 1
kvd_frame_ops_bucket{le="4"} 2
kvd_frame_ops_bucket{le="8"} 2
kvd_frame_ops_bucket{le="16"} 2
kvd_frame_ops_bucket{le="32"} 2
kvd_frame_ops_bucket{le="64"} 2
kvd_frame_ops_bucket{le="128"} 2
kvd_frame_ops_bucket{le="256"} 2
kvd_frame_ops_bucket{le="512"} 2
kvd_frame_ops_bucket{le="+Inf"} 3
kvd_frame_ops_sum 9
kvd_frame_ops_count 3
# HELP kvd_raw_connections Open client connections that carry raw frames, without gRPC.
# TYPE kvd_raw_connections gauge
kvd_raw_connections 27
# HELP kvd_raw_connections_accepted_total Client connections accepted that carry raw frames.
# TYPE kvd_raw_connections_accepted_total counter
kvd_raw_connections_accepted_total 28
# HELP kvd_raw_frames_total Frames received on raw connections.
# TYPE kvd_raw_frames_total counter
kvd_raw_frames_total 29
# HELP kvd_admission_wait_seconds Waits of store calls that were not admitted at once and were admitted later.
# TYPE kvd_admission_wait_seconds histogram
kvd_admission_wait_seconds_bucket{kind="reads",le="0.00025"} 1
kvd_admission_wait_seconds_bucket{kind="reads",le="0.0005"} 1
kvd_admission_wait_seconds_bucket{kind="reads",le="0.001"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.002"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.004"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.008"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.016"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.032"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.064"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="0.128"} 3
kvd_admission_wait_seconds_bucket{kind="reads",le="+Inf"} 6
kvd_admission_wait_seconds_sum{kind="reads"} 3
kvd_admission_wait_seconds_count{kind="reads"} 6
# HELP kvd_wal_sync_duration_seconds Syncs of the commit log and the time they took.
# TYPE kvd_wal_sync_duration_seconds histogram
kvd_wal_sync_duration_seconds_bucket{le="1.6e-05"} 1
kvd_wal_sync_duration_seconds_bucket{le="3.2e-05"} 1
kvd_wal_sync_duration_seconds_bucket{le="6.4e-05"} 1
kvd_wal_sync_duration_seconds_bucket{le="0.000128"} 2
kvd_wal_sync_duration_seconds_bucket{le="0.000256"} 2
kvd_wal_sync_duration_seconds_bucket{le="0.000512"} 2
kvd_wal_sync_duration_seconds_bucket{le="0.001024"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.002048"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.004096"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.008192"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.016384"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.032768"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.065536"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.131072"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.262144"} 3
kvd_wal_sync_duration_seconds_bucket{le="0.524288"} 3
kvd_wal_sync_duration_seconds_bucket{le="1.048576"} 5
kvd_wal_sync_duration_seconds_bucket{le="2.097152"} 5
kvd_wal_sync_duration_seconds_bucket{le="4.194304"} 5
kvd_wal_sync_duration_seconds_bucket{le="8.388608"} 5
kvd_wal_sync_duration_seconds_bucket{le="16.777216"} 5
kvd_wal_sync_duration_seconds_bucket{le="+Inf"} 5
kvd_wal_sync_duration_seconds_sum 2
kvd_wal_sync_duration_seconds_count 5
# HELP kvd_memtable_bytes Memory of the memtables, sealed ones included.
# TYPE kvd_memtable_bytes gauge
kvd_memtable_bytes{partition="0"} 23
kvd_memtable_bytes{partition="1"} 0
# HELP kvd_write_stall_seconds_total Time during which writes were slowed.
# TYPE kvd_write_stall_seconds_total counter
kvd_write_stall_seconds_total{reason="deltas"} 60
# HELP kvd_corruption_total Damaged blocks and files detected, counted once per read.
# TYPE kvd_corruption_total counter
kvd_corruption_total 30
# HELP kvd_wal_tail_dropped_bytes Bytes that recovery dropped at the end of the commit log; never acknowledged as synced.
# TYPE kvd_wal_tail_dropped_bytes gauge
kvd_wal_tail_dropped_bytes 31
`
	require.NoError(t, testutil.GatherAndCompare(Registry(sample()), strings.NewReader(want),
		"kvd_requests_total", "kvd_frame_ops", "kvd_raw_connections", "kvd_raw_connections_accepted_total", "kvd_raw_frames_total", "kvd_admission_wait_seconds", "kvd_wal_sync_duration_seconds", "kvd_memtable_bytes",
		"kvd_write_stall_seconds_total", "kvd_corruption_total", "kvd_wal_tail_dropped_bytes"))
}

// The names that tools outside of this repository rely on.
func TestPromisedMetricsAreThere(t *testing.T) {
	_, page := get(t, sample(), "/metrics")
	for _, series := range []string{
		"kvd_corruption_total 30", "kvd_wal_tail_dropped_bytes 31", "kvd_readonly 0",
		`kvd_shed_total{reason="streams"} 22`, `kvd_txn_total{outcome="commit"} 25`, `kvd_txn_total{outcome="conflict"} 26`, "kvd_inflight_bytes 24",
		`kvd_admission_inside_ops{kind="reads"} 40`, `kvd_admission_inside_bytes{kind="reads"} 41`, `kvd_admission_given_up_total{kind="reads"} 44`,
		`kvd_admission_waiting_ops{kind="reads"} 42`, `kvd_admission_waiting_bytes{kind="reads"} 43`, "kvd_connections 23", "kvd_goroutines ", "kvd_slow_requests_total 45",
		`kvd_build_info{commit="abc",go="go1.26",version="1.2.3"} 1`,
		`kvd_batch_ops_bucket{le="1"} 1`, `kvd_batch_ops_bucket{le="16"} 2`, `kvd_batch_ops_bucket{le="4096"} 3`, "kvd_batch_ops_sum 2065",
		`kvd_read_batch_ops_bucket{le="2"} 1`, `kvd_read_batch_ops_bucket{le="16"} 2`, "kvd_read_batch_ops_sum 11",
		`kvd_reads_total{partition="0"} 9`, `kvd_read_batches_total{partition="1"} 1`,
		`kvd_batch_wait_seconds_bucket{le="6.4e-05"} 1`, "kvd_batch_wait_seconds_sum 5", `kvd_read_batch_wait_seconds_bucket{le="1e-06"} 1`,
		`kvd_wal_sync_ops_bucket{le="128"} 1`, "kvd_wal_sync_ops_sum 70", `kvd_wal_group_records_bucket{le="4"} 1`,
		`kvd_request_stage_seconds_bucket{kind="reads",stage="engine",le="1.024e-06"} 1`, `kvd_request_stage_seconds_bucket{kind="reads",stage="engine",le="6.5536e-05"} 3`,
		`kvd_request_stage_seconds_sum{kind="reads",stage="engine"} 4.24e-05`, `kvd_request_stage_seconds_count{kind="reads",stage="engine"} 3`,
		`kvd_request_stage_seconds_bucket{kind="writes",stage="sync",le="1.073741824"} 0`, `kvd_request_stage_seconds_sum{kind="writes",stage="sync"} 3`,
		"kvd_wal_group_ops_sum 40", `kvd_wal_group_bytes_bucket{le="8192"} 1`, "kvd_wal_group_bytes_sum 5000",
		`kvd_queue_depth{partition="0"} 10`, `kvd_level_bytes{level="delta",partition="0"} 13`, `kvd_level_files{level="base",partition="0"} 14`,
		`kvd_cluster_role{role="leader"} 1`, `kvd_cluster_role{role="candidate"} 0`, `kvd_cluster_leader{node="1"} 1`, "kvd_cluster_term 60",
		"kvd_cluster_last_index 70", "kvd_cluster_committed_index 65", "kvd_cluster_applied_index 64",
		`kvd_cluster_follower_lag_entries{node="2"} 20`, `kvd_cluster_follower_lag_entries{node="3"} 70`,
		`kvd_cluster_follower_needs_checkpoint{node="2"} 0`, `kvd_cluster_follower_needs_checkpoint{node="3"} 1`,
		`kvd_cluster_round_reads_bucket{le="4"} 1`, "kvd_cluster_round_reads_sum 3",
		`kvd_cluster_proposals_total{outcome="committed"} 71`, `kvd_cluster_proposals_total{outcome="dropped"} 72`, `kvd_cluster_proposals_total{outcome="uncertain"} 73`,
		"kvd_cluster_elections_total 74", "kvd_cluster_leader_changes_total 75", "kvd_cluster_tenures_total 76", "kvd_cluster_calls_refused_total 87",
		`kvd_cluster_handovers_total{reason="slow_disk"} 94`, `kvd_cluster_handovers_total{reason="full_disk"} 95`,
		`kvd_cluster_comparisons_total{result="same"} 90`, `kvd_cluster_comparisons_total{result="differ"} 91`,
		"kvd_cluster_comparison_timestamp_seconds 92", "kvd_cluster_comparison_version 93",
		`kvd_cluster_peer_connected{node="2"} 1`, `kvd_cluster_peer_connected{node="3"} 0`,
		`kvd_cluster_peer_queue_bytes{lane="small",node="2"} 80`, `kvd_cluster_peer_dropped_total{lane="appends",node="2"} 82`,
		`kvd_cluster_peer_sent_total{node="2"} 83`, `kvd_cluster_peer_sent_bytes_total{node="2"} 84`, `kvd_cluster_peer_sent_file_bytes_total{node="2"} 96`,
		`kvd_cluster_peer_received_total{node="2"} 85`, `kvd_cluster_peer_not_taken_total{node="2"} 86`,
		`kvd_cache_requests_total{result="hit"} 7`, `kvd_cache_value_requests_total{result="hit"} 9`, `kvd_cache_value_requests_total{result="miss"} 10`, "kvd_snapshots_open 4", "kvd_checkpoints_open 2", "kvd_checkpoint_oldest_seconds 60", "go_goroutines ", "process_open_fds ",
	} {
		assert.Contains(t, page, "\n"+series)
	}
}

func TestBeforeTheStoreIsOpenThePageIsShorterButThere(t *testing.T) {
	s := sample()
	s.Store = func() (engine.Stats, bool) { return engine.Stats{}, false }
	code, page := get(t, s, "/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, page, "kvd_build_info")
	assert.NotContains(t, page, "kvd_batch_ops")
	code, _ = get(t, s, "/status.txt")
	assert.Equal(t, http.StatusOK, code)
}

func TestReadyFollowsTheChecks(t *testing.T) {
	s := sample()
	code, page := get(t, s, "/readyz")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ready\n", page)
	code, page = get(t, s, "/readyz?verbose")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "[+] open\n[+] writes: slow today\nready\n", page)

	s.Checks = func() []Check { return []Check{{Name: "open", Err: errors.New("replaying")}, {Name: "other"}} }
	code, page = get(t, s, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "[-] open: replaying\nnot ready\n", page)
}

func TestAliveIsAboutTheProcessAlone(t *testing.T) {
	s := sample()
	s.Checks = func() []Check { return []Check{{Name: "open", Err: errors.New("replaying")}} }
	code, page := get(t, s, "/livez")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ok\n", page)
	s.Alive = func() error { return errors.New("disk gone") }
	code, page = get(t, s, "/livez")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "failed: disk gone\n", page)
}

func TestStatusIsForPeople(t *testing.T) {
	s := sample()
	_, page := get(t, s, "/status.txt")
	for _, want := range []string{
		"state        READY", "1.2.3", "up           1h0m0s", "durability   sync", "note         writes: slow today",
		"2065 in 3 batches (688.3 each), 413.0 for each sync", "5, 400ms on average", "slowed", "30 corruptions",
		"overloaded   42 reads wait for room in the store, which has 40",
	} {
		assert.Contains(t, page, want)
	}
	assert.NotContains(t, page, "settings", "empty facts are left out")
	s.Checks = func() []Check { return []Check{{Name: "store", Err: errors.New("broken")}} }
	_, page = get(t, s, "/status.txt")
	assert.Contains(t, page, "NOT READY")
	assert.Contains(t, page, "store: broken")
}

func TestNothingCanBeChangedThroughThePages(t *testing.T) {
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/status.txt"} {
		w := httptest.NewRecorder()
		Handler(sample(), nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
	}
	code, _ := get(t, sample(), "/nothing")
	assert.Equal(t, http.StatusNotFound, code)
	code, page := get(t, sample(), "/")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, page, "/metrics")
	code, page = get(t, sample(), "/debug/pprof/cmdline")
	assert.Equal(t, http.StatusOK, code)
	assert.NotEmpty(t, page)
}
