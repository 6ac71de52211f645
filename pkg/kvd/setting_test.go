package kvd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestASettingOfTheServerIsSet(t *testing.T) {
	var hooked infoLog
	set := func(by, name, value string) (before, after string, err error) {
		if name != "log-level" {
			return "", "", errors.New("unknown setting; did you mean log-level?")
		}
		return "info by " + by, value, nil
	}
	db := serve(t, nil, service.Options{SetSetting: set}).open(t, WithHook(hooked.hook))
	before, after, err := db.SetSetting(t.Context(), "log-level", "debug")
	require.NoError(t, err)
	assert.Equal(t, "info by bufconn", before)
	assert.Equal(t, "debug", after)
	_, _, err = db.SetSetting(t.Context(), "log-levle", "debug")
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "did you mean log-level?")
	calls := hooked.take()
	require.Len(t, calls, 2)
	assert.Equal(t, "set setting", calls[1].Op)
	require.ErrorIs(t, calls[1].Err, ErrInvalid)
	require.NoError(t, db.Close())
	_, _, err = db.SetSetting(t.Context(), "log-level", "debug")
	require.ErrorIs(t, err, ErrClosed)
}

// A server without settings, and one from before there was such a call.
func TestASettingOfAServerWithoutSettings(t *testing.T) {
	_, _, err := serve(t, nil, service.Options{}).open(t).SetSetting(t.Context(), "log-level", "debug")
	require.ErrorIs(t, err, ErrInvalid)
	_, _, err = openOn(t, &servertest.Scripted{}).SetSetting(t.Context(), "log-level", "debug")
	require.ErrorIs(t, err, ErrInvalid)
}
