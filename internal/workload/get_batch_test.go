package workload

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/testsize"
)

// batchTarget answers in the opposite order.
type batchTarget struct {
	*mapTarget
	spoil func(value []byte, found bool) ([]byte, bool)
}

func (b *batchTarget) GetBatch(ctx context.Context, keys [][]byte, visit func(int, []byte, bool) error) error {
	for i := len(keys) - 1; i >= 0; i-- {
		value, found, err := b.Get(ctx, keys[i], nil)
		if err != nil {
			return err
		}
		if b.spoil != nil {
			value, found = b.spoil(value, found)
		}
		if err := visit(i, value, found); err != nil {
			return err
		}
	}
	return nil
}

// loadedConfig returns a run of reads only, and a store that a Loader has filled.
func loadedConfig(t *testing.T) (Config, *mapTarget) {
	cfg := testConfig()
	cfg.Mix = Mix{Name: "reads", Get: 100}
	cfg.Keys, cfg.Present, cfg.FindRate = 3000, 2000, 0.7
	target, l := newMapTarget(), NewLoader(cfg.ValueBytes, 7)
	key, value := make([]byte, KeyBytes), make([]byte, cfg.ValueBytes)
	for id := range cfg.Present {
		l.Fill(key, value, id)
		require.NoError(t, target.Put(t.Context(), key, value))
	}
	return cfg, target
}

func TestBatchesAndSingleGetsFindWhatWasLoaded(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, batch := range []int{0, 1, 2, 16} {
		cfg, target := loadedConfig(t)
		cfg.GetBatch = batch
		r, err := runSteps(t, cfg, &batchTarget{mapTarget: target}, 4000)
		require.NoError(t, err)
		sum := r.totals()
		asked := sum.Of(int(kindGet)) * uint64(max(batch, 1))
		assert.Equal(t, uint64(4000), sum.Of(int(kindGet)))
		assert.Equal(t, sum.Extra[getKnown], sum.Extra[getFound])
		// Two thirds of the keys of the distribution are loaded; there are no puts to
		// choose from instead.
		assert.InDelta(t, 0.7*2/3, loadgen.Ratio(sum.Extra[getFound], asked), 0.03)
	}
}

func TestWrongAnswersOfABatchAreNoticed(t *testing.T) {
	for name, spoil := range map[string]func(value []byte, found bool) ([]byte, bool){
		"a key is lost": func(value []byte, found bool) ([]byte, bool) { return nil, false },
		"a key appears": func(value []byte, found bool) ([]byte, bool) { return value, true },
		"a value is damaged": func(value []byte, found bool) ([]byte, bool) {
			if found {
				value[len(value)-1]++
			}
			return value, found
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, target := loadedConfig(t)
			cfg.GetBatch = 4
			_, err := runSteps(t, cfg, &batchTarget{mapTarget: target, spoil: spoil}, 100)
			require.ErrorIs(t, err, ErrWrongAnswer)
		})
	}
}

func TestABatchNeedsATargetThatKnowsThem(t *testing.T) {
	cfg, target := loadedConfig(t)
	cfg.GetBatch = 4
	_, err := Run(t.Context(), target, cfg, Observer{})
	require.ErrorContains(t, err, "several in one call")
}

func TestPresentKeysThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"more than keys": func(c *Config) { c.Present = c.Keys + 1 },
		"and a preload":  func(c *Config) { c.Present, c.Preload = 1, 1 },
		"negative batch": func(c *Config) { c.GetBatch = -1 },
		"large batch":    func(c *Config) { c.GetBatch = MaxGetBatch + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			spoil(&cfg)
			require.Error(t, cfg.Validate())
		})
	}
}

func TestTheCostOfReadsIsThatOfReadsThatFind(t *testing.T) {
	testsize.OneGoroutine(t)
	cfg, _ := loadedConfig(t)
	cfg.FindRate, cfg.ValueBytes, cfg.GetBatch = 1, 64<<10, 8
	present, err := measureCost(cfg, cfg.newPool())
	require.NoError(t, err)
	cfg.Present = 0
	absent, err := measureCost(cfg, cfg.newPool())
	require.NoError(t, err)
	assert.Greater(t, present, 4*absent, "checksums of 512 KiB")
}
