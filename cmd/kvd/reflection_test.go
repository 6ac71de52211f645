package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// A tool asks the server on a loopback address for its schema without any flag.
func TestTheSchemaIsThereUnlessSwitchedOff(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  codes.Code
	}{{nil, codes.OK}, {[]string{"--reflection", "off"}, codes.Unimplemented}} {
		p := serve(t, t.TempDir(), append([]string{"--dev"}, c.flags...)...)
		conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		require.NoError(t, err)
		err = stream.Send(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "kvd.v1.KVService"},
		})
		if err != nil { // refused already: Recv says why
			require.ErrorIs(t, err, io.EOF)
		}
		r, err := stream.Recv()
		assert.Equal(t, c.want.String(), status.Code(err).String())
		if c.want == codes.OK {
			assert.NotEmpty(t, r.GetFileDescriptorResponse().GetFileDescriptorProto())
		}
		require.NoError(t, conn.Close())
	}
}
