package history

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASavedHistoryIsLoaded(t *testing.T) {
	var a, b Log
	a.Add(Op{Kind: Commit, Outcome: Unknown, Client: 1, Call: 1, Return: 2, ReadVersion: 3,
		Reads:  []Read{{Key: 1, Value: Unseen, Version: 2}, {Key: 2, Value: Absent}},
		Scans:  []Scan{{From: 1, To: 4, Seen: []Read{{Key: 1, Value: 7, Version: 2}}}, {From: 5, To: 6}},
		Writes: []Write{{Key: 1, End: 9}, {Key: 2, Value: 8}}})
	a.Add(Op{Kind: Get, Outcome: Done, Call: 3, Return: 4, Reads: []Read{{Key: 1, Value: 7, Version: 2}}})
	b.Add(Op{Kind: Commit, Outcome: Done, Client: 2, Version: 5, Writes: []Write{{Key: 3, Value: 9}}})
	var file bytes.Buffer
	require.NoError(t, Save(&file, &a, &b))
	loaded, err := Load(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	require.Equal(t, append(append([]Op{}, a.Ops()...), b.Ops()...), loaded.Ops())

	_, err = Load(bytes.NewReader(file.Bytes()[:file.Len()-2]))
	require.ErrorContains(t, err, "operation 3")
}
