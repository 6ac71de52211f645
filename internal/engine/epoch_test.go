package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// powerCut opens the store as it is after a power cut that loses everything not synced. The
// old one is closed when the test ends.
func powerCut(t *testing.T, disk *vfs.Mem, o Options) *Engine {
	t.Helper()
	o.FS = disk.CrashImage(vfs.DropAll, rand.New(rand.NewPCG(1, 1)))
	return open(t, o)
}

// withoutEpoch is the transaction of a client that does not know of epochs.
func withoutEpoch(t *kv.Transaction) *kv.Transaction {
	other := *t
	other.Epoch = 0
	return &other
}

// A transaction that read a buffered write, which a power cut then took away, must
// not commit what it made of it.
func TestATransactionDoesNotOutliveWhatItRead(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	e := open(t, o)
	put(t, e, "x", "1", synced)
	put(t, e, "x", "2", buffered)
	requireValue(t, e, "x", "2")
	tx := transaction(t, e, "x")
	tx.Batch.Reset()
	tx.Batch.Put([]byte("y"), []byte("2"))

	e = powerCut(t, disk, o)
	requireValue(t, e, "x", "1")
	for _, tx := range []*kv.Transaction{tx, withoutEpoch(tx)} {
		_, err := e.Commit(t.Context(), tx, synced)
		require.ErrorIs(t, err, kv.ErrVersionGone)
		require.ErrorIs(t, err, kv.ErrOtherOpening)
	}
	requireAbsent(t, e, "y")

	again := transaction(t, e, "x")
	_, err := e.Commit(t.Context(), again, synced)
	require.NoError(t, err, "a new transaction reads what is there")
}

// A transaction does not outlive an orderly restart either, since its epoch differs,
// although nothing was lost and its read version would be valid.
func TestATransactionDoesNotOutliveAnOrderlyRestart(t *testing.T) {
	disk := vfs.NewMem()
	e := open(t, small(disk))
	put(t, e, "x", "1", synced)
	older := transaction(t, e, "x")
	put(t, e, "z", "1", synced)
	newest := transaction(t, e, "x")
	require.NoError(t, e.Close())
	e = open(t, small(disk))
	for name, tx := range map[string]*kv.Transaction{
		"older": older, "newest": newest, "older, without an epoch": withoutEpoch(older),
	} {
		_, err := e.Commit(t.Context(), tx, synced)
		require.ErrorIs(t, err, kv.ErrOtherOpening, name)
	}
	_, err := e.Commit(t.Context(), withoutEpoch(newest), synced)
	require.NoError(t, err)
}

// A store that was restored from an older copy gives out numbers of the original again.
// Clients of the original send it versions that it has not reached, and versions that
// stand for other states.
func TestATransactionOfAnotherCopyDoesNotCommit(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	e := open(t, o)
	put(t, e, "x", "in both", synced)
	o.FS = disk.KillImage()
	put(t, e, "x", "in the original", synced)
	newest := transaction(t, e, "x")
	ahead := transaction(t, e, "x")

	restored := open(t, o)
	ahead.ReadVersion = restored.Stats().Visible + 1000 // as if the original had come that far
	for name, tx := range map[string]*kv.Transaction{
		"ahead": ahead, "ahead, without an epoch": withoutEpoch(ahead), "newest": newest, "newest, without an epoch": withoutEpoch(newest),
	} {
		_, err := restored.Commit(t.Context(), tx, synced)
		require.ErrorIs(t, err, kv.ErrOtherOpening, name)
	}
	for restored.Stats().Visible < ahead.ReadVersion {
		put(t, restored, "z", "later", memory)
	}
	_, err := restored.Commit(t.Context(), ahead, synced)
	require.ErrorIs(t, err, kv.ErrOtherOpening, "the number is there now, and means something else")
	requireValue(t, restored, "x", "in both")
}

// A commit that was applied is answered with its version, though the store was opened
// again since, and one that was not is refused: so its caller knows.
func TestACommitSentAgainAfterARestartIsAnswered(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	e := open(t, o)
	put(t, e, "x", "1", synced)
	applied, lost := transaction(t, e, "x"), transaction(t, e, "y")
	guarded := transaction(t, e, "z")
	guarded.Batch.Require(kv.Guard{Key: []byte("z"), Condition: kv.Condition{Kind: kv.IfAbsent}})
	options := func(sequence uint64, d kv.Durability) kv.WriteOptions {
		return kv.WriteOptions{
			Durability: d, RequestID: kv.RequestID{ClientID: 5, Sequence: sequence, KnownVersion: applied.ReadVersion}, Deduplicated: new(bool),
		}
	}
	retry := func(sequence uint64) kv.WriteOptions {
		o := options(sequence, kv.DurabilitySync)
		o.RequestID.Retried = true
		return o
	}
	version, err := e.Commit(t.Context(), applied, options(1, kv.DurabilitySync))
	require.NoError(t, err)
	guardedVersion, err := e.Commit(t.Context(), guarded, options(2, kv.DurabilitySync))
	require.NoError(t, err)
	_, err = e.Commit(t.Context(), lost, options(3, kv.DurabilityBuffered))
	require.NoError(t, err)

	e = powerCut(t, disk, o)
	again := retry(1)
	got, err := e.Commit(t.Context(), applied, again)
	require.NoError(t, err)
	require.Equal(t, version, got)
	require.True(t, *again.Deduplicated)
	again = retry(2)
	got, err = e.Commit(t.Context(), guarded, again)
	require.NoError(t, err)
	require.Equal(t, guardedVersion, got)
	_, err = e.Commit(t.Context(), lost, retry(3))
	require.ErrorIs(t, err, kv.ErrOtherOpening)
	requireAbsent(t, e, "y")
}

// Snapshots end with the opening they are of: their versions, and their leases.
func TestASnapshotDoesNotOutliveItsOpening(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	e := open(t, o)
	put(t, e, "x", "1", synced)
	put(t, e, "x", "2", buffered)
	s, err := e.BeginSnapshot(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, e.Epoch(), s.Epoch)

	e = powerCut(t, disk, o)
	require.NotEqual(t, e.Epoch(), s.Epoch)
	_, err = e.LookupAt(t.Context(), []*kv.Lookup{{Key: []byte("x")}}, s.Version)
	require.ErrorIs(t, err, kv.ErrVersionGone)
	_, err = e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{At: s.Version})
	require.ErrorIs(t, err, kv.ErrVersionGone)
	_, err = e.KeepSnapshot(s.ID, 0)
	require.ErrorIs(t, err, kv.ErrVersionGone)
	e.ReleaseSnapshot(s.ID)
	newer, err := e.BeginSnapshot(t.Context(), 0)
	require.NoError(t, err)
	require.Greater(t, newer.Version, s.Version, "no number is given out twice, so old ones mean nothing else")
	e.ReleaseSnapshot(newer.ID)
}

// bank is accounts whose sum every transfer keeps.
type bank struct{ accounts int }

func (b bank) open(t *testing.T, e *Engine) {
	t.Helper()
	var all kv.WriteBatch
	for i := range b.accounts {
		all.Put([]byte(key(i)), []byte("100"))
	}
	_, err := e.Apply(t.Context(), &all, synced)
	require.NoError(t, err)
}

// transfer reads two accounts and returns the transaction that moves an amount.
func (b bank) transfer(ctx context.Context, e *Engine, rng *rand.Rand) (*kv.Transaction, error) {
	s, err := e.BeginSnapshot(ctx, longLease)
	if err != nil {
		return nil, err
	}
	defer e.ReleaseSnapshot(s.ID)
	from := rng.IntN(b.accounts)
	to := (from + 1 + rng.IntN(b.accounts-1)) % b.accounts
	t := &kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Batch: new(kv.WriteBatch)}
	amount := 1 + rng.IntN(50)
	for i, account := range []int{from, to} {
		l := kv.Lookup{Key: []byte(key(account))}
		if _, err := e.LookupAt(ctx, []*kv.Lookup{&l}, s.Version); err != nil || l.Err != nil {
			return nil, errors.Join(err, l.Err)
		}
		balance, err := strconv.Atoi(string(l.Value))
		if err != nil {
			return nil, fmt.Errorf("account %d: %w", account, err)
		}
		t.Keys = append(t.Keys, l.Key)
		t.Batch.Put(l.Key, []byte(strconv.Itoa(balance+(2*i-1)*amount)))
	}
	return t, nil
}

func (b bank) sum(t *testing.T, e *Engine) (sum int) {
	t.Helper()
	all := contents(t, e)
	require.Len(t, all, b.accounts)
	for account, balance := range all {
		n, err := strconv.Atoi(balance)
		require.NoError(t, err, "account %q", account)
		sum += n
	}
	return sum
}

// Clients read before a power cut, and after it commit what they computed from writes that
// it took away. The sum of the accounts never changes.
func TestTransfersOverPowerCutsKeepTheSum(t *testing.T) {
	cycles := 100
	if testsize.Reduced() {
		cycles = 20
	}
	const clients = 8
	rng := rand.New(rand.NewPCG(9, 9))
	b := bank{accounts: 10}
	disk := vfs.NewMem()
	o := unhurried(disk)
	e := open(t, o)
	b.open(t, e)
	var held []*kv.Transaction // read in the life before
	committed, gone := 0, 0
	for cycle := range cycles {
		for range 3 * clients {
			tx, err := b.transfer(t.Context(), e, rng)
			require.NoError(t, err)
			_, err = e.Commit(t.Context(), tx, []kv.WriteOptions{memory, buffered, buffered, synced}[rng.IntN(4)])
			require.NoError(t, err)
			committed++
		}
		for range clients {
			tx, err := b.transfer(t.Context(), e, rng)
			require.NoError(t, err)
			if rng.IntN(2) == 0 {
				tx.Epoch = 0 // of an older client
			}
			held = append(held, tx)
		}
		require.Equal(t, b.accounts*100, b.sum(t, e))
		disk = disk.CrashImage(vfs.CrashPolicies[rng.IntN(len(vfs.CrashPolicies))], rng)
		require.NoError(t, e.Close())
		o.FS = disk
		e = open(t, o)
		for _, tx := range held {
			_, err := e.Commit(t.Context(), tx, buffered)
			if errors.Is(err, kv.ErrVersionGone) {
				gone++
				continue
			}
			if !errors.Is(err, kv.ErrConflict) {
				require.NoError(t, err)
			}
		}
		held = nil
		require.Equal(t, b.accounts*100, b.sum(t, e), "cycle %d", cycle)
	}
	require.Equal(t, cycles*clients, gone, "each of these transactions read what a power cut may have taken")
	t.Logf("%d transfers, %d transactions refused after %d power cuts", committed, gone, cycles)
}
