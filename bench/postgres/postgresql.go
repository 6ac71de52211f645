package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kvd-db/kvd/bench/service/server"
	"github.com/kvd-db/kvd/internal/experiment"
)

// postgreSQL is a private PostgreSQL server with the article's table.
type postgreSQL struct {
	policy    // of batches, but for their size
	server    *server.Server
	pool      *pgxpool.Pool
	version   string
	diskBytes int64
}

// newPostgreSQL starts a server below dir and fills its table.
func newPostgreSQL(ctx context.Context, kind *server.Kind, dir, password string, o *options, told progress) (_ *postgreSQL, err error) {
	s, err := server.Start(ctx, kind, dir)
	if err != nil {
		return nil, err
	}
	p := &postgreSQL{policy: policy{linger: o.linger, workers: o.workers}, server: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.pool, err = connect(ctx, s.Address, password, o.connections); err != nil {
		return nil, err
	}
	if err := p.load(ctx, o.scaledRows(), told); err != nil {
		return nil, err
	}
	return p, s.Settle(ctx)
}

// newPassword returns a password for one server.
func newPassword() string { return rand.Text() }

// startTime is how long PostgreSQL may refuse connections after its start.
const startTime = 20 * time.Second

// connect returns a pool of connections. A server that has just begun to listen may still
// refuse them.
func connect(ctx context.Context, address, password string, connections int) (*pgxpool.Pool, error) {
	where := url.URL{
		Scheme: "postgres", User: url.UserPassword(server.PostgreSQLUser, password), Host: address, Path: "postgres",
		RawQuery: "sslmode=disable&pool_max_conns=" + strconv.Itoa(connections),
	}
	pool, err := pgxpool.New(ctx, where.String())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if err = pool.Ping(ctx); err == nil {
			return pool, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			pool.Close()
			return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
		}
	}
}

// insertRows is the number of rows that one statement inserts while the table is filled.
const insertRows = 100_000

// load makes the table, as the article's SQL does, and reads it into the cache.
func (p *postgreSQL) load(ctx context.Context, rows uint64, told progress) error {
	do := func(sql string, args ...any) error {
		if _, err := p.pool.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("PostgreSQL: %.60q: %w", sql, err)
		}
		return nil
	}
	if err := do(`CREATE TABLE random_read_test (pk text NOT NULL, payload text NOT NULL)`); err != nil {
		return err
	}
	for first := uint64(1); first <= rows; first += insertRows {
		last := min(first+insertRows-1, rows)
		if err := do(`INSERT INTO random_read_test SELECT lpad(n::text, 20, '0'), rpad(n || ' - ', 33, '*') FROM generate_series($1::bigint, $2::bigint) n`, first, last); err != nil {
			return err
		}
		told("%s: %d of %d rows", storePostgreSQL, last, rows)
	}
	told("%s: index, statistics and cache", storePostgreSQL)
	for _, sql := range []string{
		`ALTER TABLE random_read_test ADD PRIMARY KEY (pk)`,
		`VACUUM ANALYZE random_read_test`,
		`CHECKPOINT`,
		`CREATE EXTENSION pg_prewarm`,
		`SELECT pg_prewarm('random_read_test'), pg_prewarm('random_read_test_pkey')`,
	} {
		if err := do(sql); err != nil {
			return err
		}
	}
	return p.pool.QueryRow(ctx, `SELECT current_setting('server_version'), pg_total_relation_size('random_read_test')`).Scan(&p.version, &p.diskBytes)
}

func (p *postgreSQL) batches(fixed []string) []string {
	return append([]string{experiment.BatchNone}, fixed...)
}

func (p *postgreSQL) open(ctx context.Context, batch string) (*opened, error) {
	if batch == experiment.BatchNone {
		return &opened{newReader: p.newReader, close: func() error { return nil }}, nil
	}
	size, err := strconv.Atoi(batch)
	if err != nil {
		return nil, err
	}
	batched := p.policy
	batched.size = size
	o := newOrchestrator(ctx, batched, p.readMany)
	return &opened{newReader: o.newReader, readsPerBatch: o.readsPerStatement, close: o.Close}, nil
}

// newReader returns a reader with one statement for each read.
func (p *postgreSQL) newReader() reader {
	return func(ctx context.Context, key []byte) (payload []byte, err error) {
		err = p.pool.QueryRow(ctx, `SELECT payload FROM random_read_test WHERE pk = $1`, string(key)).Scan(&payload)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errAbsent
		}
		return payload, err
	}
}

// readMany is a query.
func (p *postgreSQL) readMany(ctx context.Context, keys []string) (map[string][]byte, error) {
	rows, err := p.pool.Query(ctx, `SELECT pk, payload FROM random_read_test WHERE pk = ANY($1)`, keys)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]byte, len(keys))
	var key string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &payload}, func() error {
		found[key] = slices.Clone(payload)
		return nil
	})
	return found, err
}

func (p *postgreSQL) describe() target {
	return target{Kind: "server", Name: "PostgreSQL " + p.version, MemoryBytes: server.BudgetBytes, DiskBytes: p.diskBytes}
}

func (p *postgreSQL) Close() error {
	if p.pool != nil {
		p.pool.Close()
	}
	return p.server.Stop()
}
